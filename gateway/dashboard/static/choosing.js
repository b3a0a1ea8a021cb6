// How files are given to be sent: chosen, or dropped.

import { add } from "./uploads.js";

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-choose]")) return;
  add(target.files);
  target.value = ""; // The same file may be chosen again.
});

// Files dropped anywhere on the page to publish are taken; elsewhere the browser would leave for the file.
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    const area = document.querySelector("[data-drop]");
    const leaves = name === "drop" || (name === "dragleave" && !event.relatedTarget);
    area?.classList.toggle("over", !leaves);
    if (!area) event.dataTransfer.dropEffect = "none";
    else if (name === "drop") add(event.dataTransfer.files);
  });
}
