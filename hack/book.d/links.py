"""Every link of the site leads to one of its files, and to an anchor there.

usage: links.py DIRECTORY
"""

import html.parser
import pathlib
import sys
import urllib.parse

# Pages that mdBook makes for itself.
OWN = {"404.html", "print.html", "toc.html"}


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])


def main():
    top = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in top.rglob("*.html") if path.name not in OWN}
    wrong, seen = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            seen += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists():
                wrong.append(f"{path.relative_to(top)}: {link} leads nowhere")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{path.relative_to(top)}: {link} has no such anchor")
    if seen < 200:
        wrong.append(f"only {seen} links were seen")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"ok      {seen} links of {len(pages)} pages")


main()
