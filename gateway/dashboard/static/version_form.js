// The form for a new version of an uploaded file. It also creates a new package, and shows each problem at its field.

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
    const fields = new FormData(form);
    const packageId = fields.get("package_id");
    if (isNew(form)) {
      await callOperation("POST", operation("add_package"), { body: selectFields(fields, (name) => PACKAGE_FIELDS.includes(name)) });
      setExists(form, true);
    }
    const body = selectFields(fields, (name, value) => !PACKAGE_FIELDS.includes(name) && value);
    await callOperation("POST", operation("add_package_version", packageId), { body });
    document.dispatchEvent(new CustomEvent("published", { detail: fields.get("server_filename") }));
    const done = document.querySelector("[data-published]");
    done.querySelector("[data-package-page]").href = `${document.body.dataset.home}/packages/${encodeURIComponent(packageId)}`;
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

const checkPackage = async (input) => {
  const id = input.value.trim();
  if (!id) return setExists(input.form, true);
  try {
    await callOperation("GET", operation("get_package_details", id));
    if (input.value.trim() === id) setExists(input.form, true);
  } catch (problem) {
    if (input.value.trim() === id) setExists(input.form, problem.code !== "package_not_found");
  }
};

document.addEventListener("change", ({ target }) => target.matches("[data-package]") && checkPackage(target));

// Suggest packages with the typed text in their id, name or publisher.
const TYPING_PAUSE = 200; // ms
let timer = 0;

const suggestPackages = async (input) => {
  const query = new URLSearchParams({ text: input.value.trim(), limit: 20 });
  try {
    const { packages } = await callOperation("GET", `${operation("find_packages")}?${query}`);
    const options = packages.map(({ package_id: id, package_name: name }) => new Option(name, id));
    input.list.replaceChildren(...options);
  } catch {
    input.list.replaceChildren(); // The user can still type an id.
  }
};

document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-package]")) return;
  clearTimeout(timer);
  timer = setTimeout(() => suggestPackages(target), TYPING_PAUSE);
});

// The message of an invalid field begins with its name in the interface.
const showProblem = (form, problem) => {
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const note of form.querySelectorAll(".field-problem")) note.remove();
  const place = form.querySelector("[data-problem]");
  place.textContent = "";
  if (!problem) return;
  const [, name, reason] = /^(\w+): (.*)$/s.exec(problem.message) ?? [];
  const field = { version_exists: "package_version", package_exists: "package_id" }[problem.code] ?? name;
  const input = field && form.elements[field];
  if (!input?.closest) return (place.textContent = problem.message);
  const note = Object.assign(document.createElement("small"), { className: "field-problem", textContent: reason ?? problem.message });
  note.id = `problem-${field}`;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-errormessage", note.id);
  input.closest("details")?.setAttribute("open", "");
  input.after(note);
  input.focus();
};

document.addEventListener("htmx:load", ({ detail }) => {
  for (const input of detail.elt.querySelectorAll("[data-package]")) checkPackage(input);
});
