// Light or dark, before the page is drawn: as the system says, unless the reader has chosen.
"use strict";

{
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
