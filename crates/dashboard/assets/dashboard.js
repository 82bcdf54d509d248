// Replaces the sections of the page that the server sends again, and shows how long ago times were.
"use strict";

const live = document.getElementById("live");
let events = null;

function ages(root) {
  for (const time of root.querySelectorAll("time")) {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dateTime)) / 1000));
    const [unit, size] = seconds < 120 ? ["s", 1] : seconds < 7200 ? ["m", 60] : seconds < 172800 ? ["h", 3600] : ["d", 86400];
    if (!Number.isNaN(seconds)) {
      time.title = time.dateTime;
      time.textContent = Math.floor(seconds / size) + unit + " ago";
    }
  }
}

function replace(message) {
  const fragment = JSON.parse(message.data);
  const section = document.getElementById(fragment.id);
  if (!section || section.dataset.hash === fragment.hash) {
    return;
  }
  // A keyboard user stays on the link that has the focus, and a table where it is scrolled to.
  const focus = section.contains(document.activeElement) && document.activeElement.getAttribute("href");
  const scrolled = Array.from(section.querySelectorAll(".scroll"), (part) => part.scrollLeft);
  section.innerHTML = fragment.html;
  section.dataset.hash = fragment.hash;
  ages(section);
  section.querySelectorAll(".scroll").forEach((part, position) => {
    part.scrollLeft = scrolled[position] || 0;
  });
  if (focus) {
    for (const link of section.querySelectorAll("a")) {
      if (link.getAttribute("href") === focus) {
        link.focus();
        break;
      }
    }
  }
}

function connect() {
  if (events) {
    return;
  }
  const known = Array.from(document.querySelectorAll("section[data-hash]"), (section) => section.dataset.hash);
  events = new EventSource(document.body.dataset.live + "&have=" + known.join(","));
  events.addEventListener("fragment", replace);
  events.onopen = () => { live.textContent = "Live"; };
  events.onerror = () => { live.textContent = "Not connected to plumb dashboard; trying again"; };
}

// A browser has few connections to a server: a page that is not visible gives its connection back.
function visibility() {
  if (document.hidden) {
    if (events) {
      events.close();
      events = null;
      live.textContent = "";
    }
  } else {
    connect();
  }
}

if (document.body.dataset.live) {
  ages(document);
  setInterval(() => ages(document), 10000);
  document.addEventListener("visibilitychange", visibility);
  visibility();
}
