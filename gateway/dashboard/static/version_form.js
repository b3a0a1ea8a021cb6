// The forms for new versions of uploaded files: a page of its own, and the rows of the publish page. They also create a
// new package, and show each problem at its field, and winget's reasons against a version before it is published.

import { clearFieldProblems, showFieldProblem } from "./field_problems.js";
import { callOperation } from "./operations.js";
import { isOwn } from "./upload_tray.js";

const PACKAGE_FIELDS = ["package_id", "package_name", "package_publisher", "package_description"];
const operation = (name, ...values) =>
  [document.body.dataset.home, "operations", name, ...values.map(encodeURIComponent)].join("/");

const added = new Set(); // packages of this visit; a form that was loaded before still has the fields of a new one

// Publish the version of a form. Returns whether it is published; if not, the form tells why.
const publish = async (form) => {
  const place = form.closest(".version");
  showProblem(form, null);
  try {
    const warnings = await loadWarnings(form);
    if (!hasSeen(form, warnings)) return false;
    const fields = new FormData(form);
    const packageId = fields.get("package_id").trim();
    fields.set("package_id", packageId);
    if (isNew(form) && !added.has(packageId)) {
      await callOperation("POST", operation("add_package"), { body: selectFields(fields, (name) => PACKAGE_FIELDS.includes(name)) });
      added.add(packageId);
    }
    const body = selectFields(fields, (name, value) => !PACKAGE_FIELDS.includes(name) && value);
    const { UID } = await callOperation("POST", operation("add_package_version", packageId), { body });
    document.dispatchEvent(new CustomEvent("published", { detail: fields.get("server_filename") }));
    form.remove();
    await showPublished(place, `${packageId} ${fields.get("package_version")}`, `packages/${encodeURIComponent(packageId)}/versions/${UID}`, warnings);
    return true;
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    showProblem(form, problem);
    return false;
  }
};

// In place of the form: which rings the version is offered to, what it waits for, and how it is installed.
const showPublished = async (place, name, path, warnings) => {
  const done = place.querySelector("[data-published]");
  const link = done.querySelector("[data-version-page]");
  link.textContent = name;
  link.href = `${document.body.dataset.home}/${path}`;
  showWarnings(done.querySelector("[data-winget-result]"), warnings);
  htmx.process(done);
  done.hidden = false;
  for (const control of place.closest("[data-publish-rows] > *")?.querySelectorAll("[data-pick], .actions") ?? []) control.remove();
  const standing = done.querySelector("[data-standing]");
  try {
    await htmx.ajax("GET", link.href, { source: standing, target: standing, select: "#standing > *", swap: "innerHTML" });
  } catch {
    // The link leads to it.
  }
  standing.removeAttribute("aria-busy");
};

const whileBusy = async (button, work) => {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    await work();
  } finally {
    button.removeAttribute("aria-busy");
  }
};

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-version-form]");
  if (!form) return;
  event.preventDefault();
  const place = form.closest(".version");
  const button = event.submitter;
  if (button) whileBusy(button, async () => (await publish(form)) && place.querySelector("[data-published]").focus());
});

// The rows of the publish page. Those that the user picks are published one after the other.
const picked = () => [...document.querySelectorAll("[data-publish-rows] > :has([data-pick]:checked) form[data-version-form]")];
const publishAll = () => document.querySelector("[data-publish-all]");

const countPicked = () => {
  const button = publishAll();
  if (!button) return;
  const count = picked().length;
  button.disabled = !count;
  button.textContent = count ? button.dataset.text.replace("{num}", count) : button.dataset.none;
};

const publishPicked = async () => {
  const state = publishAll().parentElement.querySelector("[role=status]");
  let published = 0;
  let refused = null;
  for (const form of picked()) {
    if (form.checkValidity() && (await publish(form))) published += 1;
    else refused ??= form;
    state.textContent = state.dataset.text.replace("{num}", published);
  }
  countPicked();
  if (refused && !refused.checkValidity()) {
    refused.querySelector(":invalid:not(fieldset)").closest("details")?.setAttribute("open", "");
    refused.reportValidity();
  } else (refused?.querySelector("[data-winget-warning]:not([hidden]), [aria-invalid]") ?? state).focus();
};

document.addEventListener("click", ({ target }) => target.matches("[data-publish-all]") && whileBusy(target, publishPicked));

// What somebody fills in is what they publish.
document.addEventListener("input", ({ target }) => {
  const pick = target.closest("[data-publish-rows] > *")?.querySelector("[data-pick]");
  if (pick && target !== pick) pick.checked = true;
  countPicked();
});

// The other rows stay as they are when an upload is deleted.
document.addEventListener("operation", (event) => {
  const row = event.target.closest("[data-publish-rows] > *");
  if (!row) return;
  row.querySelector("form")?.reset(); // Nothing of it is unsaved.
  if (row.parentElement.children.length === 1) return;
  event.preventDefault();
  queueMicrotask(() => {
    row.remove(); // htmx repeats its event for an element that is gone.
    countPicked();
  });
});

const selectFields = (fields, isSelected) => {
  const selected = new FormData();
  for (const [name, value] of fields) if (isSelected(name, value)) selected.append(name, value);
  return selected;
};

// The fields of the package are enabled for a new package.
const newPackage = (form) => form.querySelector("[data-new-package]");
const isNew = (form) => !newPackage(form).disabled;
const setExists = (form, exists) => {
  newPackage(form).disabled = newPackage(form).hidden = exists;
};

// Fields that are empty get the switches of the newest version, if it is of the same type; the scope only if the file
// does not tell it.
const fillFromNewest = async (form, id) => {
  const { versions: [newest] } = await callOperation("GET", `${operation("find_versions", id)}?limit=1`);
  if (newest?.file_type !== form.elements.file_type.value) return;
  const details = await callOperation("GET", operation("get_version_details", newest.uid));
  const empty = [...form.elements].filter(({ name, value }) => name.startsWith("switch_") && !value && details[name]);
  for (const field of empty) field.value = details[field.name];
  if (!form.dataset.scope) form.elements.file_scope.value = details.file_scope;
  const place = form.querySelector("[data-taken]");
  place.textContent = place.dataset.taken.replace("{version}", newest.package_version);
};

const checkPackage = async (input) => {
  const id = input.value.trim();
  if (!id) return setExists(input.form, true);
  try {
    await callOperation("GET", operation("get_package_details", id));
    if (input.value.trim() !== id) return;
    setExists(input.form, true);
    await fillFromNewest(input.form, id);
  } catch (problem) {
    if (input.value.trim() === id) setExists(input.form, problem.code !== "package_not_found");
  }
};

document.addEventListener("change", ({ target }) => target.matches("[data-package]") && checkPackage(target));

const showProblem = (form, problem) => {
  clearFieldProblems(form);
  const place = form.querySelector("[data-problem]");
  place.textContent = "";
  if (problem && !showFieldProblem(form, problem)) place.textContent = problem.message;
};

// The warnings of winget about the fields. Without a response, the form can be published all the same.
const CHECKED = [
  ...["package_id", "package_version", "file_type", "file_type_nested", "file_nested_path"],
  ...["productcode", "upgradecode", "package_family_name", "package_name"],
];
const loadWarnings = async (form) => {
  const fields = new FormData(form);
  const query = new URLSearchParams(CHECKED.map((name) => [name, fields.get(name) ?? ""]));
  try {
    const answer = await fetch(`${document.body.dataset.home}/check?${query}`, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return [...page.querySelectorAll("#winget-check > .warning")].map((warning) => warning.textContent);
  } catch {
    return [];
  }
};

const showWarnings = (place, warnings) => {
  place.replaceChildren(...warnings.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  place.hidden = !warnings.length;
};

// Returns whether the user has seen these warnings of winget. If not, they are shown, and the user submits again.
const hasSeen = (form, warnings) => {
  const place = form.querySelector("[data-winget-warning]");
  const button = form.querySelector('[type="submit"]');
  const text = warnings.join("\n");
  if (!text || form.dataset.seen === text) return true;
  form.dataset.seen = text;
  showWarnings(place, warnings);
  if (button) button.textContent = place.dataset.anyway;
  place.focus();
  return false;
};

const prepare = (part) => {
  for (const input of part.querySelectorAll("[data-package]")) checkPackage(input);
  for (const row of document.querySelectorAll("[data-publish-rows] > :not([data-known])")) {
    row.dataset.known = "";
    if (isOwn(row.dataset.upload)) row.querySelector("[data-pick]").checked = true;
  }
  countPicked();
};

document.addEventListener("htmx:load", ({ detail }) => prepare(detail.elt));
prepare(document);
