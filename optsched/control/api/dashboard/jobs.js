/* The table of jobs. The controller searches, sorts and pages; the page holds one page of them. */
const PAGE = innerWidth < 620 ? 20 : 50;
const STATUSES = ["waiting", "held", "starting", "running", "stopping", "lost", "completed", "failed", "cancelled"];
const CHOICES = [["", "not finished"], ...STATUSES.slice(0, 6).map(name => [name, name]), [STATUSES.slice(6).join(), "finished"], ...STATUSES.slice(6).map(name => [name, name]), [STATUSES.join(), "all"]];
const wanted = {name: "", state: "", user: "", tenant: "", sort: "submitted", pages: [null], ...JSON.parse(store.get("wanted") ?? "{}"), pages: [null]};
let listed = {jobs: [], total: 0, next: null}, now_s = 0, asked = 0;

const range = (from, to, write) => from === null || from === undefined ? "" : to === null || to === undefined || write(to) === write(from) ? write(from) : `${write(from)} – ${write(to)}`;
const gpus = job => job.min_gpus === job.max_gpus ? String(job.max_gpus) : `${job.min_gpus}–${job.max_gpus}`;
const done = job => job.finished_s !== null ? null : job.step !== null && job.total_steps ? job.step / job.total_steps : job.remaining_s === null || !job.ran_s ? null : job.ran_s / (job.ran_s + job.remaining_s);
const waits = job => job.status === "waiting" || job.status === "held";
const forecast = (job, what) => job.finished_s !== null || (what === "start" && !waits(job)) ? "" : range(job[`${what}_p50_s`], job[`${what}_p90_s`], s => instant(s, now_s));
const where = job => job.status === "running" || job.status === "stopping" ? job.placement.map(held => held.node).join(", ") + (job.reason ? ` · ${job.reason}` : "") : job.reason ?? "";

/** Columns: class, title, what it is sorted by, its text. */
const COLUMNS = [
  ["name", "Job", "name", job => job.id], ["user", "User", "user", job => job.user], ["tenant", "Tenant", "tenant", job => job.tenant],
  ["status", "State", "status", job => job.status], ["size n", "GPUs", "gpus", gpus], ["priority n", "Priority", "priority", job => job.priority + (job.weight === 1 ? "" : ` × ${number(job.weight)}`)],
  ["waited n", "Waited", "waited", job => human(job.waited_s)], ["ran n", "Ran", "ran", job => job.ran_s ? human(job.ran_s) : ""], ["progress", "To go", "left", job => job.finished_s !== null ? "" : (job.estimate ? "~ " : "") + human(job.remaining_s)],
  ["starts", "Starts, 50–90 %", "starts", job => forecast(job, "start")], ["ends", "Ends, 50–90 %", "ends", job => forecast(job, "end")], ["where", "Where, or why not", null, where],
];
const LABELS = {"waited n": "waited", "ran n": "ran", starts: "starts", ends: "ends", "size n": "GPUs"};

function setUpJobs() {
  at("status").append(...CHOICES.map(([value, name]) => el("option", {value}, name)));
  at("order").append(...COLUMNS.filter(column => column[2]).flatMap(([, title, sort]) => [el("option", {value: sort}, `by ${title.toLowerCase()}`), el("option", {value: `-${sort}`}, `by ${title.toLowerCase()}, last first`)]), el("option", {value: "submitted"}, "as submitted"), el("option", {value: "-finished"}, "last finished first"));
  document.querySelector("#jobs thead tr").append(...COLUMNS.map(([name, title, sort]) => {
    if (!sort) return el("th", {scope: "col", class: name}, title);
    const button = el("button", {type: "button"}, title);
    button.onclick = () => list({sort: wanted.sort === sort ? `-${sort}` : sort});
    return el("th", {scope: "col", class: name, "data-sort": sort}, button);
  }));
  let later;
  at("filters").oninput = event => { clearTimeout(later); later = setTimeout(() => list({name: at("search").value, state: at("status").value, user: at("user").value, tenant: at("tenant").value, sort: event.target === at("status") ? (/completed/.test(at("status").value) ? "-finished" : "submitted") : at("order").value}), 250); };
  at("filters").onsubmit = event => event.preventDefault();
  at("clear").onclick = () => list({name: "", state: "", user: "", tenant: "", sort: "submitted"});
  at("next").onclick = () => { wanted.pages.push(listed.next); refreshJobs(); };
  at("back").onclick = () => { wanted.pages.pop(); refreshJobs(); };
  at("first").onclick = () => { wanted.pages = [null]; refreshJobs(); };
  const body = document.querySelector("#jobs tbody");
  const rowOf = event => event.target.closest("tr[data-job]");
  body.onclick = event => { const row = rowOf(event); if (row && !getSelection().toString()) openPanel(row.dataset.job); };
  body.onpointerover = event => light(rowOf(event)?.dataset.job ?? null);
  body.onpointerleave = () => light(null);
  body.onkeydown = event => {
    const row = rowOf(event);
    const next = {ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling, Home: body.firstElementChild, End: body.lastElementChild}[event.key];
    if (next) { next.focus(); event.preventDefault(); }
    if (row && (event.key === "Enter" || event.key === " ")) { openPanel(row.dataset.job); event.preventDefault(); }
  };
  body.onfocusin = event => { for (const row of body.children) row.tabIndex = row === event.target ? 0 : -1; };
  showWanted();
}

/** List other jobs, from their first page on. */
function list(changes) {
  Object.assign(wanted, changes, {pages: [null]});
  const {pages, ...kept} = wanted;
  store.set("wanted", JSON.stringify(kept));
  showWanted();
  return refreshJobs();
}

function showWanted() {
  for (const [id, name] of [["search", "name"], ["status", "state"], ["user", "user"], ["tenant", "tenant"], ["order", "sort"]]) if (at(id).value !== wanted[name]) at(id).value = wanted[name];
  for (const head of document.querySelectorAll("#jobs th[data-sort]")) {
    const name = wanted.sort.replace("-", "");
    if (head.dataset.sort === name) head.setAttribute("aria-sort", wanted.sort === name ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
}

function jobsQuery() {
  const query = new URLSearchParams({all: "true", limit: PAGE});
  const name = wanted.name.trim(), page = wanted.pages.at(-1);
  if (name) query.set("name", /[*?]/.test(name) ? name : `*${name}*`);
  for (const key of ["user", "tenant", "state"]) if (wanted[key].trim()) query.set(key, wanted[key].trim());
  if (wanted.sort !== "submitted") query.set("sort", wanted.sort);
  if (page) query.set("page", page);
  return `/v1/jobs?${query}`;
}

async function refreshJobs() {
  const mine = ++asked;
  try {
    const page = await ask(jobsQuery());
    if (mine === asked) showJobs(page);       // else another was asked for since
  } catch (error) {
    if (!(error instanceof Refusal) || mine !== asked || error.status === 401) throw error;
    showJobs({jobs: [], total: 0, next: null}, error.message);
  }
}

function showJobs(page, fault = "") {
  listed = page;
  const body = document.querySelector("#jobs tbody"), byName = new Map(page.jobs.map(job => [job.id, job]));
  const rows = keyed(body, [...byName.keys()], makeRow);
  rows.forEach((row, i) => fillRow(row, page.jobs[i]));
  at("jobs").classList.toggle("no-priority", page.jobs.every(job => job.priority === 0 && job.weight === 1) && !/priority/.test(wanted.sort));
  at("jobs").classList.toggle("no-forecast", !page.jobs.some(job => forecast(job, "start") || forecast(job, "end")));
  if (rows.length && !rows.some(row => row.tabIndex === 0)) rows[0].tabIndex = 0;
  const choice = CHOICES.find(([value]) => value === wanted.state)?.[1] ?? "";
  write(at("count"), `${page.total.toLocaleString("en")} ${choice === "all" ? "in all" : choice}`);
  const first = (wanted.pages.length - 1) * PAGE;
  write(at("page"), page.jobs.length ? `${first + 1}–${first + page.jobs.length} of ${page.total}` : "");
  at("first").disabled = at("back").disabled = wanted.pages.length < 2;
  at("next").disabled = !page.next;
  const filtered = wanted.name || wanted.state || wanted.user || wanted.tenant;
  at("empty").hidden = page.jobs.length > 0;
  write(at("empty"), fault || (filtered ? "No job is like that." : "No job waits or runs; submit one with: optsched submit"));
  suggest("users", page.jobs.map(job => job.user));
  suggest("tenants", page.jobs.map(job => job.tenant));
}

function makeRow(id) {
  const cells = COLUMNS.map(([name]) => el("td", {class: name, ...(LABELS[name] ? {"data-label": LABELS[name]} : {})}));
  const row = el("tr", {"data-job": id, tabindex: "-1", "aria-haspopup": "dialog"}, ...cells);
  row.texts = cells.map((cell, i) => {
    const text = el("span");
    if (i === 0) cell.append(text);
    return text;
  });
  row.swatch = el("i", {class: "swatch"});
  row.meter = el("i");
  return row;
}

function fillRow(row, job) {
  COLUMNS.forEach(([name, , , textOf], i) => {
    const cell = row.children[i], span = row.texts[i], text = short(textOf(job));
    if (span.textContent === text && cell.contains(span)) return;
    span.textContent = text;
    if (text) cell.append(span); else span.remove();
    if (name === "where" || name === "name" || name === "user" || name === "tenant") cell.title = text;
  });
  const status = row.texts[3];
  if (status.className !== `state ${job.status}`) status.className = `state ${job.status}`;
  const isShown = ["running", "starting", "stopping", "lost"].includes(job.status), name = row.texts[0];
  if (isShown) row.swatch.className = `swatch ${markClass(job.id)}`;
  if (isShown !== name.contains(row.swatch)) isShown ? name.prepend(row.swatch) : row.swatch.remove();
  const share = done(job), progress = row.texts[8];
  if (share !== null && !row.meter.parentNode) el("i", {class: "bar"}).append(row.meter);
  if (share === null) row.meter.parentNode?.remove();
  else { row.meter.style.width = `${(100 * Math.min(1, share)).toFixed(1)}%`; if (!progress.contains(row.meter)) progress.prepend(row.meter.parentNode); }
  if (progress.title !== (share === null ? "" : percent(share))) progress.title = share === null ? "" : percent(share);
  row.setAttribute("aria-selected", String(job.id === opened));
}

const suggested = {users: new Set(), tenants: new Set()};
/** Offer names that were seen to the filters. */
function suggest(id, names) {
  for (const name of names) {
    if (!name || suggested[id].has(name) || suggested[id].size >= 500 || name.length > 250) continue;
    suggested[id].add(name);
    at(id).append(el("option", {value: name}));
  }
  at("tenant").hidden = suggested.tenants.size === 0 && !wanted.tenant;
}
