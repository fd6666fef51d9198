// Refreshes what stands in <main> while the page is looked at. Without scripts, reloading does the same.
const EVERY_MS = 2000;
async function refresh() {
  if (document.hidden || document.activeElement?.closest("main a")) return;
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (!answer.ok) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const main = document.querySelector("main");
    if (next && main.innerHTML !== next.innerHTML) main.replaceWith(next);
  } catch { /* The server is away; the next try comes soon. */ }
}
setInterval(refresh, EVERY_MS);
