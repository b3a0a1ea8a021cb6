// Forms of the settings:
//   data-settings               a form whose lists are sent as JSON
//   data-rows="field"           a list: its [data-row] are in its [data-list], a new one is in its template;
//                               [data-add-row], [data-remove-row] and [data-move] change the list.
//                               A row has fields with data-member, and may have lists of its own

const networks = (text) =>
  text.split(/[\n,]/).map((network) => network.trim()).filter(Boolean).join(",");

const own = (parent, selector, ancestor) => [...parent.querySelectorAll(selector)].filter((element) => element.parentElement.closest(ancestor) === parent);

const valueOf = (field) => (field.type === "checkbox" ? field.checked : field.type === "number" ? Number(field.value) : field.value.trim());

// A row without what is empty, off or zero.
const rowOf = (row) =>
  Object.fromEntries(
    [
      ...own(row, "[data-member]", "[data-row]").map((field) => [field.dataset.member, valueOf(field)]),
      ...own(row, "[data-rows]", "[data-row]").map((list) => [list.dataset.rows, rowsOf(list)]),
    ].filter(([, value]) => (Array.isArray(value) ? value.length : value)),
  );

const rowsOf = (list) => own(list, "[data-row]", "[data-rows]").map(rowOf).filter((row) => Object.keys(row).length);

// The fields of a form that differ from its inputs.
export const settingsOf = (form) => {
  if (!form.matches("[data-settings]")) return {};
  const fields = {};
  const { allowed_networks: field } = form.elements;
  if (field) fields.allowed_networks = networks(field.value);
  for (const list of own(form, "[data-rows]", "[data-row], form")) {
    const { rows: name } = list.dataset;
    const rows = rowsOf(list);
    if (name === "rings") {
      fields.rings = rows.map((ring) => ring.name).join(",");
      const gates = Object.fromEntries(rows.map(({ name: ring, ...conditions }) => [ring, conditions]));
      fields.gates = rows.length ? JSON.stringify(gates) : "";
    } else fields[name] = rows.length ? JSON.stringify(rows) : "";
  }
  return fields;
};

document.addEventListener("htmx:configRequest", ({ detail }) => Object.assign(detail.parameters, detail.elt.matches("form") ? settingsOf(detail.elt) : {}));

document.addEventListener("operation", (event) => {
  if (event.target.matches("[data-settings]")) event.preventDefault();
});

document.addEventListener("click", ({ target }) => {
  const row = target.closest("[data-row]");
  if (target.closest("[data-remove-row]")) row.remove();
  const step = Number(target.closest("[data-move]")?.dataset.move);
  if (step < 0) row.previousElementSibling?.before(row);
  if (step > 0) row.nextElementSibling?.after(row);
  if (step) target.focus();
  const list = target.closest("[data-add-row]")?.closest("[data-rows]");
  if (!list) return;
  const place = list.querySelector("[data-list]");
  place.append(list.querySelector(":scope > template").content.cloneNode(true));
  place.lastElementChild.querySelector("input").focus();
});
