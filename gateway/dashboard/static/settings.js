// The page of the settings.
//   data-settings               a form that stays as it is once its settings are saved
//   data-agreements="field"     the list whose [data-agreement] become that field, as JSON of their [data-member]

const networks = (text) =>
  text.split(/[\n,]/).map((one) => one.trim()).filter(Boolean).join(",");

const agreements = (list) => {
  const all = [...list.querySelectorAll("[data-agreement]")].map((one) => {
    const members = [...one.querySelectorAll("[data-member]")].filter((field) => field.value.trim());
    return Object.fromEntries(members.map((field) => [field.dataset.member, field.value.trim()]));
  });
  const said = all.filter((one) => Object.keys(one).length);
  return said.length ? JSON.stringify(said) : "";
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
  target.closest("[data-agreement-less]")?.closest("[data-agreement]").remove();
  const more = target.closest("[data-agreement-more]");
  if (!more) return;
  const form = more.closest("form");
  const list = form.querySelector("[data-agreements]");
  list.append(form.querySelector("[data-agreement-new]").content.cloneNode(true));
  list.lastElementChild.querySelector("input").focus();
});
