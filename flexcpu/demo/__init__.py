"""One program, two devices: trains a network, embeds sentences and takes snapshots on "cpu" and on "flex".

    python -m flexcpu.demo [--out FOLDER]

Everything runs from the same seeds. It takes one to three minutes, needs no network, and writes the loss curves to
FOLDER/digits.png.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: everything is in the packages

DEVICES = ("cpu", "flex")
