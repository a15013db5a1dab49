"""python -m flexcpu [--json]"""

import argparse
import json

from . import info


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flexcpu", description="Shows what the flex device runs on.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = info.collect()
    print(json.dumps(found, indent=2) if parser.parse_args().json else info.as_text(found))


if __name__ == "__main__":
    main()
