// Shows the problem of a form beside its field.

// Fields of the problems that name none.
const FIELD_OF = { version_exists: "package_version", package_exists: "package_id", client_exists: "client_name", user_exists: "username", token_exists: "name" };

export const clearFieldProblems = (form) => {
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const note of form.querySelectorAll(".field-problem")) note.remove();
};

// Returns whether the form has the field. The message of an invalid field begins with its name.
export const showFieldProblem = (form, { message, code, params }) => {
  const field = FIELD_OF[code] ?? params?.field;
  const input = field && form.elements[field];
  if (!input?.closest || input.type === "hidden") return false;
  const note = Object.assign(document.createElement("small"), { className: "field-problem", textContent: message.replace(`${field}: `, "") });
  note.id = `problem-${form.id}-${field}`;
  note.setAttribute("role", "alert");
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-errormessage", note.id);
  input.closest("details")?.setAttribute("open", "");
  input.after(note);
  input.focus();
  return true;
};
