// The form that makes a version of an uploaded file: a package that is not there yet is made with it, and what is wrong
// with a field is said beside it.

import { ask } from "./asking.js";

const OF_PACKAGE = ["package_id", "package_name", "package_publisher", "package_description"];
const operation = (name, ...values) =>
  [document.body.dataset.home, "operations", name, ...values.map(encodeURIComponent)].join("/");

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-version-form]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector('[type="submit"]');
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  tell(form, null);
  try {
    const fields = new FormData(form);
    const packageId = fields.get("package_id");
    if (isNew(form)) {
      await ask("POST", operation("add_package"), { body: only(fields, (name) => OF_PACKAGE.includes(name)) });
      know(form, true);
    }
    const body = only(fields, (name, value) => !OF_PACKAGE.includes(name) && value);
    await ask("POST", operation("add_package_version", packageId), { body });
    document.dispatchEvent(new CustomEvent("published", { detail: fields.get("server_filename") }));
    const done = document.querySelector("[data-published]");
    done.querySelector("[data-package-page]").href = `${document.body.dataset.home}/packages/${encodeURIComponent(packageId)}`;
    htmx.process(done);
    form.hidden = true;
    done.hidden = false;
    done.focus();
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    tell(form, problem);
  } finally {
    button.removeAttribute("aria-busy");
  }
});

const only = (fields, wanted) => {
  const some = new FormData();
  for (const [name, value] of fields) if (wanted(name, value)) some.append(name, value);
  return some;
};

// Whether the package is there decides whether its own fields are asked for.
const newPackage = (form) => form.querySelector("[data-new-package]");
const isNew = (form) => !newPackage(form).disabled;
const know = (form, isThere) => {
  newPackage(form).disabled = newPackage(form).hidden = isThere;
};

const look = async (input) => {
  const id = input.value.trim();
  if (!id) return know(input.form, true);
  try {
    await ask("GET", operation("get_package_details", id));
    if (input.value.trim() === id) know(input.form, true);
  } catch (problem) {
    if (input.value.trim() === id) know(input.form, problem.code !== "package_not_found");
  }
};

document.addEventListener("change", ({ target }) => target.matches("[data-package]") && look(target));

// Packages that have what is typed in their id, name or publisher are offered.
const TYPING = 200; // ms without a key after which is asked
let typing = 0;

const offer = async (input) => {
  const asked = new URLSearchParams({ text: input.value.trim(), limit: 20 });
  try {
    const { packages } = await ask("GET", `${operation("find_packages")}?${asked}`);
    const options = packages.map(({ package_id: id, package_name: name }) => new Option(name, id));
    input.list.replaceChildren(...options);
  } catch {
    input.list.replaceChildren(); // An id can be typed all the same.
  }
};

document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-package]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => offer(target), TYPING);
});

// A problem of a field begins with its name, as the interface has it.
const tell = (form, problem) => {
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
  for (const input of detail.elt.querySelectorAll("[data-package]")) look(input);
});
