"""Serve a model on this machine and ask it over HTTP. Needs `pip install 'longtail[serve]'`."""

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
train = train.take(range(int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", train.n_rows))))
learner = TextLearner(learner=recipe("dismec")).fit(train.texts, train.Y)
Model(learner, label_names=train.label_names, recipe="dismec").save("tags")

command = [sys.executable, "-m", "longtail", "serve", "tags", "--port", "0"]  # port 0: any that is free
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
    try:
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.:]+", line)))
        for _ in range(300):  # the model is loaded and warmed up while the server already listens
            try:
                urlopen(f"{address}/readyz").close()
                break
            except URLError:
                time.sleep(0.2)
        question = {"text": "A small tiling window manager for X, written in C.", "k": 3, "explain": True, "parts": 2}
        request = Request(f"{address}/v1/predict", json.dumps(question).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as response:
            answer = json.load(response)
        for label in answer["results"][0]["predictions"]:
            words = ", ".join(part["feature"] for part in label["explanation"]["parts"])
            print(f"{label['score']:+.3f}  {label['name']}  ({label['training_rows']} training rows; {words})")
    finally:
        server.terminate()
