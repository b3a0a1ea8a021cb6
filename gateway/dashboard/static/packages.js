// Packages and their versions. Pages say in their HTML what they want of it:
//   data-switch="field"         a checkbox whose operation is told 1 or 0 in this field, and which goes back if it fails
//   data-chosen                 a form that is sent only where something in it is chosen

const isSwitch = (element) => element.matches?.("[data-switch]");

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (isSwitch(detail.elt)) detail.parameters[detail.elt.dataset.switch] = detail.elt.checked ? "1" : "0";
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (isSwitch(detail.elt) && !detail.successful) detail.elt.checked = !detail.elt.checked;
});

// The switch shows what it did: the page need not be loaded again.
document.addEventListener("operation", (event) => {
  if (isSwitch(event.target)) event.preventDefault();
});

const allow = () => {
  for (const form of document.querySelectorAll("form[data-chosen]"))
    form.querySelector("[type=submit]").disabled = !form.querySelector("input:checked");
};

document.addEventListener("change", allow);
document.addEventListener("htmx:load", allow);
allow();
