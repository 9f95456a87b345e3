"use strict";
// How numbers, times and names are written.

// As Python's format(value, ".2f"): the exact decimal expansion, and of two equally near numbers the even one.
// toFixed is exact too, but takes the larger of the two. A tie ends within a hundred decimals.
function decimal(value, digits) {
  if (Math.abs(value) >= 1e21) return BigInt(value) + (digits ? `.${"0".repeat(digits)}` : ""); // toFixed gives 1e+21
  const exact = value.toFixed(100);
  const end = exact.indexOf(".") + (digits ? digits + 1 : 0);
  const down = exact.slice(0, end);
  const tie = /^\.?50*$/.test(exact.slice(end));
  return (Object.is(value, -0) ? "-" : "") + (tie && /[02468]$/.test(down) ? down : value.toFixed(digits));
}

const fixed = (value, digits = 2) => decimal(value, digits).replace("-", "\u2212");
const signed = (value) => (decimal(value, 2).startsWith("-") ? "" : "+") + fixed(value);
const spread = (pair) => (pair ? fixed(pair[0]) + (pair[1] === null ? "" : ` ± ${fixed(pair[1])}`) : "–");
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (part, whole) => `${fixed((100 * part) / whole, 1)} %`;
const distinct = (values) => [...new Set(values)];
const among = (value, low, high) => Math.min(Math.max(value, low), high);

function duration(seconds) {
  if (seconds < 100) return `${fixed(seconds, seconds < 10 ? 2 : 1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A name without the middle of its long lists: a class order may have a thousand entries.
const brief = (name) => name.replace(/\[([^\]]{12})[^\]]{12,}\]/g, "[$1…]");

// Names without what follows the method in most of them, as identity.short_names in Python; the others without what all
// of them contain: "/cifar100" and "/b50s10", or ",epochs=40".
function shortNames(names) {
  const pieces = names.map((name) => name.split(/(?=[/,](?![^[]*\]))/));
  const rests = pieces.map((own) => own.slice(1).join(""));
  const usual = names.length > 1 && rests.find((rest) => 2 * rests.filter((own) => own === rest).length > names.length);
  const common = names.length > 1 ? pieces[0].filter((piece) => pieces.every((own) => own.includes(piece))) : [];
  return pieces.map((own, place) =>
    rests[place] === usual ? own[0] : brief(own.filter((piece, at) => at === 0 || !common.includes(piece)).join("")),
  );
}

// As validation.no_formula in Python: a spreadsheet would evaluate a name such as =1+1.
const noFormula = (text) =>
  /^[=+\-@\t\r]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? `'${text}` : text;

// Rows of texts, numbers and nulls, in full precision.
function commaSeparated(rows) {
  const field = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "number" ? String(value) : noFormula(String(value).replace(/[\r\n]+/g, " "));
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(field).join(",")}\n`).join("");
}
