"use strict";
// Everything that is shown goes through `make`, which sets text as text: identities are what applications
// wrote into znodes.

const byId = (id) => document.getElementById(id);
const QUIET = 15000; // milliseconds without a word after which the data are called old
const FIRST = 50;

const ask = { namespace: "", q: "", attention: false, limit: FIRST, election: "" };
let source = null;
let lastWord = null; // when the operator was heard last
let lostSince = null;
let shown = null;
let retry = 0;

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined) continue;
    if (key === "text") element.textContent = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Text of unknown origin: it may be written from right to left.
const foreign = (text) => make("bdi", { text });

function clock(date) {
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], { hour12: false });
  return today ? time : date.toLocaleDateString() + " " + time;
}

function when(text) {
  if (!text) return make("span", { class: "empty", text: "–" });
  const date = new Date(text);
  return make("time", { datetime: text, title: text, text: isNaN(date) ? text : clock(date) });
}

const orNone = (text, none = "–") =>
  text === null || text === undefined || text === ""
    ? make("span", { class: "empty", text: none })
    : foreign(String(text));

function facts(list) {
  const dl = make("dl");
  for (const [name, value] of list) {
    dl.append(make("div", null, make("dt", { text: name }), make("dd", null, value)));
  }
  return dl;
}

function table(caption, columns, rows) {
  const head = make("tr");
  for (const [name, kind] of columns) head.append(make("th", { scope: "col", class: kind, text: name }));
  return make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    make("table", null, make("caption", { text: caption }), make("thead", null, head), make("tbody", null, ...rows)));
}

const STAGES = { done: "done", underWay: "under way", remaining: "to come" };

function timeline(plan) {
  const steps = make("ol", { class: "steps" });
  for (const step of plan.steps) {
    const item = make("li", { "data-stage": step.stage },
      make("span", { class: "step", text: step.title }),
      make("span", { class: "stage", text: STAGES[step.stage] }));
    if (step.members.length > 0 && step.stage !== "done") {
      item.append(make("ol", { class: "turns" }, ...step.members.map((turn) =>
        make("li", { "data-stage": turn.stage, text: turn.name + ": " + (turn.stage === "underWay" ? turn.note : STAGES[turn.stage]) }))));
    }
    steps.append(item);
  }
  const since = plan.since ? make("span", { class: "stage" }, "since ", when(plan.since)) : null;
  return make("div", null, make("h4", null, plan.title, since), steps);
}

// What the message above says already is not said again.
function conditions(list, message) {
  const wrong = list.filter((condition) => condition.tone !== "good" && condition.message !== message);
  if (wrong.length === 0) return null;
  return make("div", null, make("h4", { text: "Conditions that are not as they should be" }),
    make("ul", { class: "plain" }, ...wrong.map((condition) =>
      make("li", null,
        make("strong", { class: "sign", "data-tone": condition.tone, text: condition.type + " is " + condition.status }),
        " (" + condition.reason + ", since ", when(condition.since), "): ", foreign(condition.message)))));
}

function ensemble(view) {
  const ready = { true: ["ready", "good"], false: ["not ready", "bad"] };
  const rows = view.members.map((member) => {
    const [word, tone] = ready[member.ready] || ["–", null];
    return make("tr", { "data-leads": member.role === "leader" },
      make("th", { scope: "row", text: member.name }),
      make("td", { class: "keep" }, make("span", { class: "sign", "data-tone": member.tone, text: member.role })),
      make("td", { class: "number", text: member.id }),
      make("td", { class: "number" }, orNone(member.epoch)),
      make("td", { class: "mono keep" }, orNone(member.zxid)),
      make("td", { class: "keep" }, make("span", { "data-tone": tone, text: word })),
      make("td", { class: "keep" }, orNone(member.node)),
      make("td", { class: "text" }, member.state === "UpToDate" ? make("span", { class: "empty", text: "nothing" }) : foreign(member.verdict.replace(/^Waiting for /, ""))));
  });
  const list = [
    ["Size", String(view.size)], ["Ready", orNone(view.ready)], ["Leader", orNone(view.leader, "none")],
    ["Version", orNone(view.version)], ["Voters", view.voters.length ? "{" + view.voters.join(", ") + "}" : orNone(null)],
  ];
  if (view.observers) list.push(["Observers", foreign(view.observers)]);
  const article = make("article", { class: "card" },
    make("div", { class: "bar" }, make("h3", { text: view.namespace + "/" + view.name }),
      make("span", { class: "pill sign", "data-tone": view.tone, text: view.phase })),
    make("p", { class: "message" }, foreign(view.message)), facts(list),
    view.timeline ? timeline(view.timeline) : null);
  if (rows.length > 0) {
    article.append(table("Members", [
      ["Pod"], ["Role"], ["Id", "number"], ["Epoch", "number"], ["Last zxid"], ["Readiness"], ["Node"], ["Waits for"],
    ], rows));
  }
  const wrong = conditions(view.conditions, view.message);
  if (wrong) article.append(wrong);
  return article;
}

const nameOf = (view) => view.namespace + "/" + view.name;

function electionRow(row) {
  const name = nameOf(row);
  const open = make("button", { class: "name", type: "button", "aria-expanded": ask.election === name, "aria-controls": "election", text: name });
  open.addEventListener("click", () => openElection(ask.election === name ? "" : name));
  return make("tr", null,
    make("th", { scope: "row" }, open),
    make("td", { class: "keep" }, make("span", { class: "sign", "data-tone": row.tone, text: row.state })),
    make("td", null, make("span", { class: "clip" }, orNone(row.leader, "nobody"))),
    make("td", { class: "number", text: row.candidates }),
    make("td", { class: "number" }, orNone(row.token)),
    make("td", { class: "keep" }, when(row.since)),
    make("td", { class: "keep", text: row.dialect }));
}

function openElection(name) {
  ask.election = name;
  connect();
  if (name) byId("election").dataset.focus = "yes";
}

function election(opened) {
  const close = make("button", { type: "button", text: "Close" });
  close.addEventListener("click", () => { openElection(""); byId("elections").focus(); });
  const title = (text) => make("h3", { tabindex: "-1", id: "election-title", text });
  if (opened.missing !== undefined || opened.unreadable !== undefined) {
    const why = opened.missing !== undefined ? "There is no such election, or the operator does not work in its namespace."
      : "It cannot be read: " + opened.unreadable;
    return [make("div", { class: "bar" }, title(ask.election), close), make("p", { class: "message", text: why })];
  }
  const view = opened.found;
  const queue = view.queue.map((candidate) => make("tr", { "data-leads": candidate.leads },
    make("td", { class: "number", text: candidate.position }),
    make("td", null, foreign(candidate.identity), candidate.leads ? make("strong", { text: " leads" }) : null),
    make("td", { class: "mono" }, foreign(candidate.node)),
    make("td", { class: "keep" }, when(candidate.since))));
  const history = view.history.map((change) => make("tr", null,
    make("td", { class: "keep" }, when(change.time)), make("td", null, orNone(change.identity, "nobody leads")),
    make("td", { class: "number" }, orNone(change.token)), make("td", null, orNone(change.cause, ""))));
  const rest = view.candidates > view.queue.length ? " (the first " + view.queue.length + " of " + view.candidates + ")" : "";
  return [
    make("div", { class: "bar" }, title(nameOf(view)),
      make("span", { class: "pill sign", "data-tone": view.tone, text: view.state }), close),
    facts([
      ["Leader", orNone(view.leader, "nobody")], ["Fencing token", orNone(view.token)], ["Since", when(view.since)],
      ["Pod", orNone(view.pod)], ["Candidates", String(view.candidates)], ["Changes of the leader", String(view.transitions)],
      ["Dialect", foreign(view.dialect)], ["Path", foreign(view.path)], ["In", foreign(view.holder)],
    ]),
    make("div", { class: "columns" },
      queue.length ? table("Queue of candidates" + rest, [["Place", "number"], ["Candidate"], ["Znode"], ["Since"]], queue) : null,
      history.length ? table("Last changes of the leader", [["Time"], ["Who leads since"], ["Fencing token", "number"], ["Term before ended by"]], history) : null),
    conditions(view.conditions),
  ];
}

// Keeps what did not change, so that focus, selection and scrolling stay.
function fill(parent, items, key, build) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const state = JSON.stringify(item);
    let child = old.get(name);
    old.delete(name);
    if (!child || child.dataset.state !== state) {
      const fresh = build(item);
      fresh.dataset.key = name;
      fresh.dataset.state = state;
      if (child) {
        const held = child.contains(document.activeElement) ? [...child.querySelectorAll("button,[tabindex]")].indexOf(document.activeElement) : -1;
        if (place === child) place = fresh;
        child.replaceWith(fresh);
        if (held >= 0) (fresh.querySelectorAll("button,[tabindex]")[held] || fresh).focus();
      }
      child = fresh;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

const number = (n) => n.toLocaleString();

function count(part, some) {
  if (part.total === 0) return "There are none.";
  const all = part.matching === part.total ? number(part.total) : number(part.matching) + " of " + number(part.total);
  const first = some < part.matching ? ", the first " + number(some) + " are shown" : "";
  return all + first + (part.attention ? "; " + number(part.attention) + " need" + (part.attention === 1 ? "s" : "") + " attention" : "");
}

let told = 0;
function tell(lines) {
  if (lines.length === 0 || Date.now() - told < 3000) return;
  told = Date.now();
  byId("news").replaceChildren(...lines.slice(0, 5).map((text) => make("p", { text })));
}

function news(before, now) {
  const lines = [];
  if (!before) return lines;
  const old = new Map(before.ensembles.shown.map((view) => [nameOf(view), view]));
  for (const view of now.ensembles.shown) {
    const last = old.get(nameOf(view));
    if (last && (last.phase !== view.phase || last.leader !== view.leader)) {
      lines.push(nameOf(view) + ": " + view.phase + ", " + (view.leader ? view.leader + " leads" : "nobody leads"));
    }
  }
  const rows = new Map(before.elections.shown.map((row) => [nameOf(row), row]));
  for (const row of now.elections.shown) {
    const last = rows.get(nameOf(row));
    if (last && (last.leader !== row.leader || last.state !== row.state)) {
      lines.push("Election " + nameOf(row) + ": " + (row.leader ? row.leader + " leads" : "nobody leads") + ", " + row.state);
    }
  }
  return lines;
}

function show(view) {
  const select = byId("namespace");
  const names = ["", ...new Set([...view.namespaces, ...(ask.namespace ? [ask.namespace] : [])])];
  if ([...select.options].map((option) => option.value).join() !== names.join()) {
    select.replaceChildren(...names.map((name) => make("option", { value: name, text: name || "All" })));
  }
  select.value = ask.namespace;
  byId("operator").textContent = "Version " + view.operator.version + ", told by " + view.operator.identity;
  byId("ensembles-count").textContent = view.complete || view.ensembles.total ? count(view.ensembles, view.ensembles.shown.length) : "Reading …";
  byId("elections-count").textContent = view.complete || view.elections.total ? count(view.elections, view.elections.shown.length) : "Reading …";
  fill(byId("ensemble-list"), view.ensembles.shown, nameOf, ensemble);
  // Whether a row is open is a part of its state.
  fill(byId("election-list"), view.elections.shown.map((row) => ({ ...row, open: nameOf(row) === ask.election })), nameOf, electionRow);
  byId("elections-scroll").hidden = view.elections.shown.length === 0;
  byId("more").hidden = view.elections.shown.length >= Math.min(view.elections.matching, 500);
  const panel = byId("election");
  panel.hidden = !view.election;
  const state = JSON.stringify(view.election);
  if (panel.dataset.state !== state) {
    const inside = panel.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    panel.replaceChildren(...(view.election ? election(view.election).filter((part) => part) : []));
    panel.dataset.state = state;
    if (inside && view.election) panel.querySelector("button").focus();
  }
  if (view.election && panel.dataset.focus) {
    delete panel.dataset.focus;
    byId("election-title").focus();
  }
  tell(news(shown, view));
  shown = view;
}

function health() {
  const link = byId("link");
  const old = byId("old");
  let text = "";
  if (lostSince) {
    link.dataset.tone = "bad";
    link.textContent = "Not connected";
    text = "Connection lost since " + clock(lostSince) + ". What is shown is from then; the page tries again.";
  } else if (lastWord && Date.now() - lastWord > QUIET) {
    link.dataset.tone = "bad";
    link.textContent = "No word";
    text = "The operator has said nothing since " + clock(new Date(lastWord)) + ". What is shown may be old.";
  } else if (shown && shown.trouble) {
    link.dataset.tone = "bad";
    link.textContent = "Data are old";
    text = "Data may be old since " + clock(new Date(shown.trouble.since)) + ": " + shown.trouble.message;
  } else if (lastWord) {
    link.dataset.tone = "good";
    link.textContent = "Live";
  }
  link.classList.add("sign");
  if (old.textContent !== text) old.textContent = text;
  old.hidden = text === "";
}

function heard() {
  lastWord = Date.now();
  lostSince = null;
  retry = 0;
  health();
}

function connect() {
  const words = new URLSearchParams();
  if (ask.namespace) words.set("namespace", ask.namespace);
  if (ask.q) words.set("q", ask.q);
  if (ask.attention) words.set("attention", "true");
  if (ask.election) words.set("election", ask.election);
  history.replaceState(null, "", words.size ? "?" + words : location.pathname);
  if (ask.limit !== FIRST) words.set("limit", ask.limit);
  if (source) source.close();
  const mine = new EventSource("page/events?" + words);
  source = mine;
  mine.addEventListener("view", (event) => {
    if (source !== mine) return;
    const view = JSON.parse(event.data);
    show(view);
    heard();
  });
  mine.addEventListener("alive", () => { if (source === mine) heard(); });
  mine.addEventListener("error", () => {
    if (source !== mine) return;
    lostSince = lostSince || new Date();
    health();
    // A browser gives up by itself when it is answered with an error, such as by a proxy.
    if (mine.readyState === EventSource.CLOSED) {
      retry = Math.min(retry + 1, 5);
      setTimeout(() => { if (source === mine) connect(); }, 1000 * retry);
    }
  });
}

function start() {
  const words = new URLSearchParams(location.search);
  ask.namespace = words.get("namespace") || "";
  ask.q = words.get("q") || "";
  ask.attention = words.get("attention") === "true";
  ask.election = words.get("election") || "";
  byId("q").value = ask.q;
  byId("attention").checked = ask.attention;
  let typing = 0;
  const changed = () => {
    ask.namespace = byId("namespace").value;
    ask.q = byId("q").value.trim();
    ask.attention = byId("attention").checked;
    ask.limit = FIRST;
    connect();
  };
  byId("filter").addEventListener("submit", (event) => { event.preventDefault(); changed(); });
  byId("namespace").addEventListener("change", changed);
  byId("attention").addEventListener("change", changed);
  byId("q").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(changed, 300); });
  byId("more").addEventListener("click", () => { ask.limit = Math.min(ask.limit * 2, 500); connect(); });
  setInterval(health, 1000);
  connect();
}

start();
