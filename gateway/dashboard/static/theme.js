// The colour scheme, set before the page is rendered: the user's choice, else that of the system.
"use strict";

{
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
