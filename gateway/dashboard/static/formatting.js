// Numbers in the language of the page.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const decimal = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 1 });

// A size in the largest unit that gives at least 1, such as `1.5 GiB`.
export const size = (bytes) => {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${decimal.format(bytes / 1024 ** unit)} ${UNITS[unit]}`;
};

// Seconds as `0:42`, `12:05` or `1:00:09`.
export const duration = (seconds) => {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) parts.shift();
  return parts.map((part, place) => (place ? String(part).padStart(2, "0") : part)).join(":");
};
