// Packages and their versions:
//   data-switch="field"         a checkbox that sends 1 or 0 in this field, and flips back if the operation fails
//   data-requires-selection     a form that needs at least one selected checkbox

const isSwitch = (element) => element.matches?.("[data-switch]");

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (isSwitch(detail.elt)) detail.parameters[detail.elt.dataset.switch] = detail.elt.checked ? "1" : "0";
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (isSwitch(detail.elt) && !detail.successful) detail.elt.checked = !detail.elt.checked;
});

// The switch already shows the new value; the page needs no reload.
document.addEventListener("operation", (event) => {
  if (isSwitch(event.target)) event.preventDefault();
});

const updateButtons = () => {
  for (const form of document.querySelectorAll("form[data-requires-selection]"))
    form.querySelector("[type=submit]").disabled = !form.querySelector("input:checked");
};

document.addEventListener("change", updateButtons);
document.addEventListener("htmx:load", updateButtons);
updateButtons();
