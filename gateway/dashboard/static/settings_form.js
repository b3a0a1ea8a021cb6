// The page of the settings:
//   data-settings               a form that is not reloaded after saving
//   data-agreements="field"     a list; its [data-agreement] are sent in the field, as JSON of their [data-member]

const networks = (text) =>
  text.split(/[\n,]/).map((network) => network.trim()).filter(Boolean).join(",");

const agreements = (list) => {
  const all = [...list.querySelectorAll("[data-agreement]")].map((agreement) => {
    const members = [...agreement.querySelectorAll("[data-member]")].filter((field) => field.value.trim());
    return Object.fromEntries(members.map((field) => [field.dataset.member, field.value.trim()]));
  });
  const filled = all.filter((agreement) => Object.keys(agreement).length);
  return filled.length ? JSON.stringify(filled) : "";
};

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (!detail.elt.matches("[data-settings]")) return;
  const { allowed_networks: field } = detail.elt.elements;
  if (field) detail.parameters.allowed_networks = networks(field.value);
  const list = detail.elt.querySelector("[data-agreements]");
  if (list) detail.parameters[list.dataset.agreements] = agreements(list);
});

document.addEventListener("operation", (event) => {
  if (event.target.matches("[data-settings]")) event.preventDefault();
});

document.addEventListener("click", ({ target }) => {
  target.closest("[data-remove-agreement]")?.closest("[data-agreement]").remove();
  const addButton = target.closest("[data-add-agreement]");
  if (!addButton) return;
  const form = addButton.closest("form");
  const list = form.querySelector("[data-agreements]");
  list.append(form.querySelector("[data-agreement-new]").content.cloneNode(true));
  list.lastElementChild.querySelector("input").focus();
});
