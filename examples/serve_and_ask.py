"""Serve a model and send it a request over HTTP. Needs `pip install 'longtail[serve]'`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import Request, urlopen

from longtail import Model, TextLearner, datasets, recipe

train = datasets.load("debian-tags", "train")
rows = int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", train.n_rows))  # fewer in tests
train = train.take(range(rows))
learner = TextLearner(learner=recipe("dismec")).fit(train.texts, train.Y)
Model(learner, label_names=train.label_names, recipe="dismec").save("tags")

command = [sys.executable, "-m", "longtail", "serve", "tags", "--port", "0"]  # any free port
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
    try:
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.:]+", line)))
        for _ in range(300):  # the server listens at once, and is ready when the model is loaded and warmed up
            try:
                urlopen(f"{address}/readyz").close()
                break
            except URLError:
                time.sleep(0.2)
        body = {"text": "A small tiling window manager for X, written in C.", "k": 3, "explain": True, "parts": 2}
        request = Request(f"{address}/v1/predict", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as response:
            result = json.load(response)
        for label in result["results"][0]["predictions"]:
            words = ", ".join(part["feature"] for part in label["explanation"]["parts"])
            print(f"{label['score']:+.3f}  {label['name']}  ({label['training_rows']} training rows; {words})")
    finally:
        server.terminate()
