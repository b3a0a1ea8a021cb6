// Files for an upload: selected in the file dialog, or dropped on the page.

import { addFiles } from "./upload_tray.js";

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-file-picker]")) return;
  addFiles(target.files);
  target.value = ""; // The same file can be selected again.
});

// The publish page accepts files anywhere. On other pages the browser would open a dropped file.
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    const area = document.querySelector("[data-drop]");
    const leaves = name === "drop" || (name === "dragleave" && !event.relatedTarget);
    area?.classList.toggle("over", !leaves);
    if (!area) event.dataTransfer.dropEffect = "none";
    else if (name === "drop") addFiles(event.dataTransfer.files);
  });
}
