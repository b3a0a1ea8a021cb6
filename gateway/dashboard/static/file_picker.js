// Files for an upload: selected in the file dialog, or dropped on the page.

import { addFiles } from "./upload_tray.js";

document.addEventListener("change", ({ target }) => {
  const names = target.closest("[data-drop]")?.querySelector("[data-files]");
  if (!target.matches("[data-file-picker]")) {
    if (names) names.textContent = [...target.files].map((file) => file.name).join(", ");
    return;
  }
  addFiles(target.files);
  target.value = ""; // The same file can be selected again.
});

// A field of a form takes the files that are dropped on its page.
const fill = (field, files) => {
  field.files = files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
};

// A page with a place for files accepts them anywhere. On other pages the browser would open a dropped file.
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    const area = event.target.closest?.("[data-drop]") ?? document.querySelector("[data-drop]");
    const leaves = name === "drop" || (name === "dragleave" && !event.relatedTarget);
    area?.classList.toggle("over", !leaves);
    if (!area) event.dataTransfer.dropEffect = "none";
    else if (name === "drop") fill(area.querySelector("input"), event.dataTransfer.files);
  });
}
