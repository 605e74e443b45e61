"""Trains models in PyTorch Geometric from the initial weights of Grappa's runs, and prints the loss of each step.

    parity.py features CORA FEATURES.npy
    parity.py train CORA FEATURES.npy PACKAGE JOBS.json

CORA is tests/data/cora. `features` writes the first words of its papers, which are enough to learn from and save time.

PACKAGE is the folder of the Python package. JOBS.json is a list of objects: `model` is a file of initial weights, `config` has the
options of the run, and `scores` the validation accuracies of its epochs, which the schedule `plateau` takes. The output is a JSON list
with the losses of each job.
"""

import json
import sys

import numpy
import torch
from safetensors import safe_open
from torch import nn
from torch.optim import lr_scheduler

WORDS = 256


def write_features(folder, out):
    sparse = numpy.load(f"{folder}/features.npz")
    x = numpy.zeros(sparse["shape"], numpy.float32)
    rows = numpy.repeat(numpy.arange(len(x)), numpy.diff(sparse["indptr"]))
    x[rows, sparse["indices"]] = sparse["data"]
    numpy.save(out, numpy.ascontiguousarray(x[:, :WORDS]))


def cora(folder, features):
    edges = numpy.loadtxt(f"{folder}/edges.tsv", dtype=numpy.int64).T
    edges = numpy.concatenate([edges, edges[::-1]], 1)
    arrays = numpy.load(features), edges, numpy.load(f"{folder}/labels.npy"), numpy.load(f"{folder}/train.npy")
    return [torch.from_numpy(numpy.ascontiguousarray(array)) for array in arrays]


def initial(grappa_model, path, x):
    with safe_open(path, framework="pt") as file:
        model = grappa_model.Model(json.loads(file.metadata()["model"]))
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
    if model.features == "standard":
        # Training measures them before the first step.
        deviation = x.std(0, correction=0)
        model.feature_mean.copy_(x.mean(0))
        model.feature_deviation.copy_(torch.where(deviation == 0, torch.ones_like(deviation), deviation))
    return model.train()


def decayed(model, config):
    """The parameters of each layer with its weight decay."""
    values = [float(value) for value in str(config["weight-decay"]).split(",")]
    values = values if len(values) > 1 else values * config["layers"]
    groups = [{"params": [], "weight_decay": value} for value in values]
    for name, parameter in model.named_parameters():
        layer = name.split(".")[1]
        # The head after jumping knowledge belongs to the last layer.
        groups[int(layer) if layer.isdigit() else -1]["params"].append(parameter)
    return groups


def optimizer(model, config):
    groups, lr = decayed(model, config), config["lr"]
    match config["optimizer"]:
        case "adam":
            return torch.optim.Adam(groups, lr=lr)
        case "adamw":
            return torch.optim.AdamW(groups, lr=lr)
        case "sgd":
            return torch.optim.SGD(groups, lr=lr, momentum=config["momentum"])


def scheduler(optimizer, config):
    """The schedule as a function that is called after each step with the validation accuracy."""
    match config["lr-schedule"]:
        case "plateau":
            plateau = lr_scheduler.ReduceLROnPlateau(
                optimizer, mode="max", factor=config["lr-factor"], patience=config["lr-patience"], threshold=0.0
            )
            return plateau.step
        case "cosine":
            schedule = lr_scheduler.CosineAnnealingLR(optimizer, config["epochs"], eta_min=config["lr-min"])
        case "step":
            schedule = lr_scheduler.StepLR(optimizer, config["lr-step"], gamma=config["lr-factor"])
        case "constant":
            warmup = max(config["warmup"], 1)
            schedule = lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warmup))
    return lambda score: schedule.step()


def losses(grappa_model, job, x, edges, labels, train):
    config = job["config"]
    model = initial(grappa_model, job["model"], x)
    update = optimizer(model, config)
    schedule = scheduler(update, config)
    found = []
    for epoch in range(config["epochs"]):
        update.zero_grad()
        logits = model(x, edges)[train]
        loss = nn.functional.cross_entropy(logits, labels[train], label_smoothing=config["label-smoothing"])
        loss.backward()
        if config["clip"] > 0:
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
        update.step()
        found.append(loss.item())
        schedule(job["scores"][epoch])
    return found


def main():
    task, folder, features, *more = sys.argv[1:]
    if task == "features":
        write_features(folder, features)
        return
    # The graph is too small for threads.
    torch.set_num_threads(1)
    sys.path.insert(0, more[0])
    from grappa import model as grappa_model

    data = cora(folder, features)
    with open(more[1]) as file:
        print(json.dumps([losses(grappa_model, job, *data) for job in json.load(file)]))


main()
