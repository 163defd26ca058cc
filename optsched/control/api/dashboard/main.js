/* Keeps the page up to date: the state in short every two seconds, the rest where an event has happened, or times have gone on for a while. */
const EVERY_MS = 2000, HIDDEN_MS = 30000, MOST_WAIT_MS = 15000, AGED_S = 10, USE_S = 60;
let shownState = null, fresh = {events: -1, all_s: 0, use_s: 0, panel_s: 0, round: -1}, failures = 0, answered_ms = null, timer = null, turning = false;

async function turn() {
  clearTimeout(timer);
  if (turning) return;
  turning = true;
  try {
    await refresh();
    recovered();
  } catch (error) {
    failing(error);
  }
  turning = false;
  const wait_ms = failures ? Math.min(MOST_WAIT_MS, EVERY_MS * 2 ** Math.min(failures - 1, 4)) : document.hidden ? HIDDEN_MS : EVERY_MS;
  timer = setTimeout(turn, wait_ms);
}

async function refresh() {
  const state = await ask("/v1/state", "GET", MOST_WAIT_MS);
  if (shownState && state.version !== shownState.version) return location.reload();   // another page belongs to it
  now_s = state.now_s;
  viewsOnly = state.views_only;
  shownState = state;
  showFacts(state);
  const changed = state.events !== fresh.events || failures > 0;
  if (changed || now_s - fresh.all_s >= AGED_S) {
    await Promise.all([refreshJobs(), refreshNodes(), refreshWindows(), refreshHistory(), state.round?.number === fresh.round ? null : refreshRounds(), opened === null || now_s - fresh.panel_s < AGED_S ? null : refreshPanel().then(() => { fresh.panel_s = now_s; })]);
    fresh = {...fresh, events: state.events, all_s: now_s, round: state.round?.number};
    const live = [...stays.values()].filter(stay => stay.ended_s === null && stay.job !== null).sort((a, b) => a.started_s - b.started_s);
    markJobs([...new Set(live.map(stay => stay.job))], [...stays.values()].map(stay => stay.job));
    listed.jobs.forEach((job, i) => fillRow(document.querySelector("#jobs tbody").children[i], job));
    showNodes(new Set(live.filter(stay => stay.asked_s !== null).map(stay => stay.job)));
    showPrices(state.prices);
    showWindows();
    layOut(shownNodes);
  }
  drawTimeline();
  if (now_s - fresh.use_s >= USE_S || now_s < fresh.use_s) {
    await Promise.all([refreshUse(), refreshShares()]);
    fresh.use_s = now_s;
  }
  document.body.dataset.ready = "yes";
}

function showFacts(state) {
  const count = name => state.jobs[name] ?? 0, round = state.round;
  document.title = `${short(state.cluster)}: ${state.gpus_in_use} of ${state.gpus} GPUs`;
  write(at("name"), state.cluster);
  at("views-only").hidden = !state.views_only;
  const facts = [
    [`${state.gpus_in_use} / ${state.gpus}`, "GPUs in use" + (state.gpus > state.gpus_usable ? `, ${state.gpus - state.gpus_usable} unusable` : "")],
    [count("running") + count("starting") + count("stopping"), "running"], [state.queued, "waiting"],
    ...["held", "lost"].filter(name => count(name)).map(name => [count(name), name]), [state.finished, "finished"],
    ...(round ? [[human(round.wall_s), `round ${round.number}, ${instant(round.at_s, state.now_s)}`], [percent(round.gap), "its proven gap"]] : []),
    ...(state.forecast?.starts_compared >= 10 ? [[percent(state.forecast.starts_held / state.forecast.starts_compared), `of ${state.forecast.starts_compared} starts came by their 90 % forecast`]] : []), [clock(state.now_s), "now"]];
  const tiles = keyed(at("facts"), facts.map((_, i) => i), i => el("div", {class: "fact"}, el("b"), el("span", {class: "muted"}), ...(i ? [] : [el("meter", {"aria-hidden": "true"})])));
  facts.forEach(([value, name], i) => { write(tiles[i].children[0], value); write(tiles[i].children[1], name); });
  const meter = tiles[0].children[2];
  meter.max = Math.max(1, state.gpus);
  meter.value = state.gpus_in_use;
}

function recovered() {
  if (failures) document.body.classList.remove("stale");
  failures = 0;
  answered_ms = Date.now();
  at("fault").hidden = true;
}

function failing(error) {
  failures += 1;
  if (error instanceof Refusal && error.status === 401) {
    if (!at("ask").open) at("ask").showModal();
    return;
  }
  const sentence = error instanceof Refusal ? `The controller says: ${error.message}` : error instanceof NoAnswer ? "The controller does not answer" : `This page has a fault: ${error.message}`;
  document.body.classList.add("stale");
  at("fault").hidden = false;
  write(at("fault"), `${sentence}. ${answered_ms === null ? "Nothing has been shown yet" : `What is shown is ${human((Date.now() - answered_ms) / 1000)} old`}; it is asked again every few seconds.`);
}

const THEMES = ["Auto", "Light", "Dark"], system = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const chosen = at("theme").textContent;
  document.documentElement.dataset.theme = chosen === "Auto" ? (system.matches ? "dark" : "light") : chosen.toLowerCase();
  forgetColours();
  drawTimeline();
}

function setUp() {
  setUpJobs();
  setUpTimeline();
  setUpNodes();
  setUpCharts();
  at("theme").textContent = THEMES.includes(store.get("theme")) ? store.get("theme") : "Auto";
  at("theme").onclick = () => { at("theme").textContent = THEMES[(THEMES.indexOf(at("theme").textContent) + 1) % 3]; store.set("theme", at("theme").textContent); applyTheme(); };
  system.onchange = applyTheme;
  applyTheme();
  at("by").onchange = at("hours").onchange = () => refreshUse().catch(failing);
  at("ask").onclose = () => { token = at("token").value.trim(); at("token").value = ""; store.set("token", token); void turn(); };
  document.onvisibilitychange = () => { if (!document.hidden) void turn(); };
  document.onkeydown = event => {
    if (event.key === "Escape" && opened !== null) closePanel();
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { at("search").focus(); event.preventDefault(); }
  };
  void turn();
}
setUp();
