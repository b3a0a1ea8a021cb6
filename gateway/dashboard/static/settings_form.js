// Forms of the settings:
//   data-test                   a button that sends the form elsewhere; its [data-tested] is shown after a success
//   data-settings               a form whose changed lists are sent as JSON; without data-then its page stays as it is
//   data-rows="field"           a list: its [data-row] are in its [data-list], a new one is in its template;
//                               [data-add-row], [data-remove-row], [data-move] and [data-grip] change the list.
//                               A row has fields with data-member, and may have lists of its own;
//                               a field with data-networks is sent as a list

const networks = (text) => text.split(/[\n,]/).map((network) => network.trim()).filter(Boolean);

const own = (parent, selector, ancestor) => [...parent.querySelectorAll(selector)].filter((element) => element.parentElement.closest(ancestor) === parent);

const valueOf = (field) => ("networks" in field.dataset ? networks(field.value) : field.type === "checkbox" ? field.checked : field.type === "number" ? Number(field.value) : field.value.trim());

// A row without what is empty, off or zero.
const rowOf = (row) =>
  Object.fromEntries(
    [
      ...own(row, "[data-member]", "[data-row]").map((field) => [field.dataset.member, valueOf(field)]),
      ...own(row, "[data-rows]", "[data-row]").map((list) => [list.dataset.rows, rowsOf(list)]),
    ].filter(([, value]) => (Array.isArray(value) ? value.length : value)),
  );

const rowsOf = (list) => own(list, "[data-row]", "[data-rows]").map(rowOf).filter((row) => Object.keys(row).length);

const listsOf = (form) => {
  const fields = {};
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

const stored = new WeakMap(); // the lists of each form as they were loaded, or saved last

const rememberLists = () => {
  for (const form of document.querySelectorAll("[data-settings]")) if (!stored.has(form)) stored.set(form, listsOf(form));
};

document.addEventListener("htmx:load", rememberLists);
rememberLists();

// The fields of a form that differ from its inputs. Lists that nobody changed are left out: another user may have changed
// them meanwhile. Rules of rings go with changed rings, so that a rule of a ring that is gone is refused.
export const settingsOf = (form) => {
  if (!form.matches("[data-settings]")) return {};
  const { allowed_networks: field } = form.elements;
  const lists = listsOf(form);
  const isChanged = (name) => lists[name] !== stored.get(form)?.[name];
  const changed = Object.entries(lists).filter(([name]) => isChanged(name) || (name === "ring_rules" && isChanged("rings")));
  return { ...(field && { allowed_networks: networks(field.value).join(",") }), ...Object.fromEntries(changed) };
};

document.addEventListener("htmx:configRequest", ({ detail }) => Object.assign(detail.parameters, detail.elt.closest("form") ? settingsOf(detail.elt.closest("form")) : {}));

const showTested = (element, isGood) => {
  const place = element.closest("form")?.querySelector("[data-tested]");
  if (place) place.hidden = !isGood;
};

for (const name of ["input", "htmx:beforeRequest"]) document.addEventListener(name, ({ target }) => showTested(target, false));

document.addEventListener("operation", (event) => {
  if (event.target.matches("[data-test]")) {
    event.preventDefault();
    showTested(event.target, true);
  }
  if (!event.target.matches("[data-settings]")) return;
  stored.set(event.target, listsOf(event.target));
  if (!event.target.dataset.then) event.preventDefault();
});

// A row is dragged by its [data-grip]. With the keyboard, [data-move] does the same.
let dragged = null;

document.addEventListener("dragstart", ({ target, dataTransfer }) => {
  if (!target.matches?.("[data-grip]")) return;
  dragged = target.closest("[data-row]");
  dataTransfer.setDragImage(dragged, 0, 0);
});

document.addEventListener("dragover", (event) => {
  const row = dragged && [...dragged.parentElement.children].find((each) => each.contains(event.target));
  if (!row) return;
  event.preventDefault();
  if (row === dragged) return;
  const isBefore = row.compareDocumentPosition(dragged) & Node.DOCUMENT_POSITION_FOLLOWING;
  row[isBefore ? "before" : "after"](dragged);
  dragged.dispatchEvent(new Event("input", { bubbles: true }));
});

document.addEventListener("dragend", () => (dragged = null));

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
