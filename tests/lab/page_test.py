#!/usr/bin/env python3
"""The lab's page in headless Chromium: page_test.py VPMU. Exit status 77 where there is no Chromium.

Charts are drawn, in light and dark; nothing is said on the console; no request leaves the page; and a page that is
broken on purpose is found out, so that these checks can fail.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Runs behind the page's own script, and leaves what it saw in the document.
WITNESS = """
<script>
(() => {
  const canvases = [...document.querySelectorAll('canvas')];
  const drawn = canvases.filter((canvas) => {
    const {width, height} = canvas;
    const pixels = width * height === 0 ? [] : canvas.getContext('2d').getImageData(0, 0, width, height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] === 255) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    }
    return colours.size > 2;
  });
  const witness = {
    canvases: canvases.length,
    drawn: drawn.length,
    tables: document.querySelectorAll('table').length,
    tiles: document.querySelectorAll('.tile').length,
    background: getComputedStyle(document.body).backgroundColor,
    wide: document.documentElement.scrollWidth > innerWidth,
    resources: performance.getEntriesByType('resource').map((entry) => entry.name).filter((n) => !n.startsWith('data:')),
  };
  const out = document.createElement('pre');
  out.id = 'witness';
  out.textContent = JSON.stringify(witness);
  document.body.append(out);
})();
</script>
"""
LISTENER = """<script>
addEventListener('error', (e) => console.error('ERROR ' + e.message));
addEventListener('securitypolicyviolation', (e) => console.error('BLOCKED ' + e.blockedURI));
</script>"""

failures = 0


def expect(what, holds, seen=""):
    global failures
    if not holds:
        failures += 1
    print(("ok      " if holds else "FAILED  ") + what + ("" if holds else f": {seen}"))


def look(chromium, folder, page, *options):
    """What the page shows, and what the console says."""
    path = pathlib.Path(folder) / "page.html"
    path.write_text(page.replace("<head>", "<head>" + LISTENER, 1).replace("</body>", WITNESS + "</body>"))
    run = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
         "--enable-logging=stderr", "--window-size=1280,1000", *options, "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="witness">(.*?)</pre>', run.stdout, re.DOTALL)
    seen = json.loads(found.group(1).replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")) if found else {}
    return seen, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def main():
    chromium = shutil.which("chromium")
    if chromium is None:
        print("skipped: chromium is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/lab.html"
        subprocess.run([sys.argv[1], "lab", "--no-measure", "--ticks", "20", "--html", out], check=True,
                       stdout=subprocess.DEVNULL)
        page = pathlib.Path(out).read_text()
        expect("no address is in the page", not re.search(r'(src|href)="?https?:', page))

        backgrounds = []
        for name, options in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
            seen, console = look(chromium, folder, page, *options)
            expect(f"{name}: all charts are drawn", seen.get("drawn", 0) == seen.get("canvases") and
                   seen.get("canvases", 0) >= 8, seen)
            expect(f"{name}: five tiles", seen.get("tiles") == 5, seen)
            expect(f"{name}: tables", seen.get("tables", 0) >= 8, seen)
            expect(f"{name}: the page is as wide as the window", seen.get("wide") is False, seen)
            expect(f"{name}: nothing on the console", console == [], console)
            expect(f"{name}: no request", seen.get("resources") == [], seen)
            backgrounds.append(seen.get("background"))
        expect("light and dark differ", backgrounds[0] != backgrounds[1], backgrounds)

        # The checks themselves.
        seen, console = look(chromium, folder, page.replace("draw();\n", "fail();\n", 1))
        expect("a page that draws nothing is found out", seen.get("drawn") == 0 and console != [], (seen, console))
        _, console = look(chromium, folder, page.replace("</body>", '<img src="http://192.0.2.1/x.png"></body>', 1))
        expect("a request is blocked and seen", any("192.0.2.1" in line for line in console), console)
    return 1 if failures else 0


sys.exit(main())
