// The form for a new version of an uploaded file. It also creates a new package. It shows each problem at its field, and
// winget's reasons against the version before it is published.

import { clearFieldProblems, showFieldProblem } from "./field_problems.js";
import { callOperation } from "./operations.js";

const PACKAGE_FIELDS = ["package_id", "package_name", "package_publisher", "package_description"];
const operation = (name, ...values) =>
  [document.body.dataset.home, "operations", name, ...values.map(encodeURIComponent)].join("/");

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-version-form]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector('[type="submit"]');
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  showProblem(form, null);
  try {
    const warnings = await loadWarnings(form);
    if (!hasSeen(form, warnings, button)) return;
    const fields = new FormData(form);
    const packageId = fields.get("package_id");
    if (isNew(form)) {
      await callOperation("POST", operation("add_package"), { body: selectFields(fields, (name) => PACKAGE_FIELDS.includes(name)) });
      setExists(form, true);
    }
    const body = selectFields(fields, (name, value) => !PACKAGE_FIELDS.includes(name) && value);
    const { UID } = await callOperation("POST", operation("add_package_version", packageId), { body });
    document.dispatchEvent(new CustomEvent("published", { detail: fields.get("server_filename") }));
    const done = document.querySelector("[data-published]");
    done.querySelector("[data-version-page]").href = `${document.body.dataset.home}/packages/${encodeURIComponent(packageId)}/versions/${UID}`;
    showWarnings(done.querySelector("[data-winget-result]"), warnings);
    document.querySelector("main h1").textContent = done.dataset.title;
    htmx.process(done);
    form.hidden = true;
    done.hidden = false;
    done.focus();
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    showProblem(form, problem);
  } finally {
    button.removeAttribute("aria-busy");
  }
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
const hasSeen = (form, warnings, button) => {
  const place = form.querySelector("[data-winget-warning]");
  const text = warnings.join("\n");
  if (!text || form.dataset.seen === text) return true;
  form.dataset.seen = text;
  showWarnings(place, warnings);
  button.textContent = place.dataset.anyway;
  place.focus();
  return false;
};

const checkPackages = (part) => {
  for (const input of part.querySelectorAll("[data-package]")) checkPackage(input);
};

document.addEventListener("htmx:load", ({ detail }) => checkPackages(detail.elt));
checkPackages(document);
