"use strict";
(() => {
  const root = document.documentElement;
  const all = (where, what) => Array.from(where.querySelectorAll(what));

  // The scheme: what the system says, until somebody chooses.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("scheme");
  const now = () => root.dataset.scheme || (dark.matches ? "dark" : "light");
  const show = () => {
    button.textContent = now() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", "Switch to the " + (now() === "dark" ? "light" : "dark") + " scheme");
  };
  try { const kept = localStorage.getItem("proctor-scheme"); if (kept === "dark" || kept === "light") root.dataset.scheme = kept; } catch (error) { /* no storage for this page */ }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.scheme = now() === "dark" ? "light" : "dark";
    try { localStorage.setItem("proctor-scheme", root.dataset.scheme); } catch (error) { /* then not */ }
    show();
  });
  dark.addEventListener("change", show);
  show();

  const sortable = (table, sort) => all(table, "th button").forEach((head) => head.addEventListener("click", () => {
    const th = head.parentElement;
    const first = th.classList.contains("n") ? "descending" : "ascending";
    const order = !th.hasAttribute("aria-sort") ? first : th.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    all(table, "th").forEach((other) => other.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", order);
    sort(th.cellIndex, order === "ascending" ? 1 : -1);
  }));
  const compare = (a, b, sign) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  };

  // Tables that are all there: sorted by data-v, or by their text.
  all(document, "table.sort").forEach((table) => {
    const body = table.tBodies[0];
    const value = (row, place) => {
      const cell = row.cells[place];
      if (cell.dataset.v === undefined) return cell.textContent;
      return cell.dataset.v === "" ? null : Number(cell.dataset.v);
    };
    sortable(table, (place, sign) => body.append(...Array.from(body.rows).sort((a, b) => compare(value(a, place), value(b, place), sign))));
  });

  // The table of all samples: rows are data, fifty at a time become cells. Text goes in as text.
  const table = document.getElementById("samples-table");
  if (!table) return;
  const rows = JSON.parse(document.getElementById("samples-data").textContent);
  const SIZE = 50;
  const body = table.tBodies[0];
  const find = document.getElementById("find"), verdict = document.getElementById("verdict");
  const back = document.getElementById("back"), next = document.getElementById("next"), where = document.getElementById("where");
  const fields = [0, 1, 2, 3, 4, (row) => (row[6] ? row[5] / row[6] : null), 7, 8, 9];
  const field = (row, place) => (typeof fields[place] === "function" ? fields[place](row) : row[fields[place]]);
  let shown = rows, page = 0;
  const number = (value, digits) => (value === null ? "–" : String(Number(value.toFixed(digits))));
  const cell = (line, text, kind) => {
    const made = line.insertCell();
    if (kind) made.className = kind;
    made.textContent = text;
    return made;
  };
  const draw = () => {
    const last = Math.max(0, Math.ceil(shown.length / SIZE) - 1);
    page = Math.min(Math.max(page, 0), last);
    body.replaceChildren();
    shown.slice(page * SIZE, (page + 1) * SIZE).forEach((row) => {
      const line = body.insertRow();
      const first = cell(line, "", "n");
      const card = document.getElementById("sample-" + row[0]);
      if (card) {
        const link = document.createElement("a");
        link.href = "#" + card.id;
        link.textContent = row[0];
        link.addEventListener("click", () => {
          card.open = true;
          if (card.parentElement.tagName === "DETAILS") card.parentElement.open = true;
        });
        first.append(link);
      } else first.textContent = row[0];
      cell(line, row[1], "t");
      if (table.dataset.models) cell(line, row[2], "t");
      const told = cell(line, "");
      const tag = document.createElement("span"), dot = document.createElement("span");
      tag.className = "tag";
      dot.className = "dot v-" + row[3];
      tag.append(dot, row[3].replaceAll("_", " "));
      told.append(tag);
      cell(line, row[4] === null ? "none" : number(row[4], 3), "n");
      cell(line, row[6] ? row[5] + "/" + row[6] : "–", "n");
      cell(line, row[7] < 0.1 ? number(row[7] * 1000, 1) + " ms" : number(row[7], 2) + " s", "n");
      cell(line, row[8] === null ? "–" : number(row[8], 0) + " MiB", "n");
      cell(line, row[9] ? row[9].toFixed(2) : "–", "n");
    });
    const from = shown.length ? page * SIZE + 1 : 0;
    where.textContent = shown.length ? from + "–" + Math.min(shown.length, from + SIZE - 1) + " of " + shown.length : "no sample matches";
    back.disabled = page === 0;
    next.disabled = page === last;
  };
  const pick = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter((row) => {
      if (verdict.value === "flagged" ? row[9] < 0.5 : verdict.value && row[3] !== verdict.value) return false;
      const text = (row[1] + " " + row[2] + " " + row[3] + " #" + row[0]).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    page = 0;
    draw();
  };
  find.addEventListener("input", pick);
  verdict.addEventListener("change", pick);
  back.addEventListener("click", () => { page -= 1; draw(); });
  next.addEventListener("click", () => { page += 1; draw(); });
  sortable(table, (place, sign) => {
    const at = !table.dataset.models && place > 1 ? place + 1 : place;
    rows.sort((a, b) => compare(field(a, at), field(b, at), sign));
    pick();
  });
  document.getElementById("samples-controls").hidden = false;
  draw();
})();
