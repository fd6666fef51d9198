"""The bill of materials of the functions, as CycloneDX 1.6, from what cargo has locked. The same lock file gives the
same bytes."""

import json
import subprocess
import sys


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "tidemark-functions")
    wanted, queue = set(), [root]
    while queue:
        id = queue.pop()
        if id not in wanted:
            wanted.add(id)
            # What only tests and build scripts need is not shipped.
            queue += [d["pkg"] for d in nodes[id]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(packages[root], "application")},
        "components": [component(packages[id], "library") for id in sorted(wanted - {root}, key=lambda id: purl(packages[id]))],
        "dependencies": [
            {
                "ref": purl(packages[id]),
                "dependsOn": sorted({purl(packages[d["pkg"]]) for d in nodes[id]["deps"] if d["pkg"] in wanted}),
            }
            for id in sorted(wanted, key=lambda id: purl(packages[id]))
        ],
    }
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    print()


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, kind):
    described = {"type": kind, "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package)}
    if package["license"]:
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return described


main()
