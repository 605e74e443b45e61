"""Prints the numbers that the tests of scores compare with, as computed by scikit-learn.

    pip install scikit-learn
    python scikit_learn.py
"""

import numpy as np
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss, precision_score, recall_score, roc_auc_score

MASK = 2**64 - 1


class Numbers:
    """The generator of the tests: Knuth's linear congruential one, its upper 24 bits."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return self.state >> 40

    def below(self, n):
        return self.next() % n

    def logit(self):
        # Of 33 values, so that many are equal.
        return (self.next() % 33 - 16) / 8


def single(seed, nodes, classes, used):
    numbers = Numbers(seed)
    labels, logits = [], []
    for _ in range(nodes):
        label = numbers.below(used + 1) - 1  # -1: unlabelled
        row = [numbers.logit() for _ in range(classes)]
        if label >= 0:
            row[label] += 1
            labels.append(label)
            logits.append(row)
    return np.array(labels), np.array(logits, dtype=np.float32)


def sets(seed, nodes, classes):
    numbers = Numbers(seed)
    labels, logits = [], []
    for _ in range(nodes):
        labelled = numbers.below(5) > 0
        row = [numbers.below(3) == 0 and c != 4 for c in range(classes)]  # nobody is in class 4
        values = [numbers.logit() - 0.5 + row[c] for c in range(classes)]
        if labelled:
            labels.append(row)
            logits.append(values)
    return np.array(labels, dtype=int), np.array(logits, dtype=np.float32)


def show(name, labels, predicted, **more):
    print(name, "nodes", len(labels))
    print("  accuracy", repr(accuracy_score(labels, predicted)))
    print("  macro_f1", repr(f1_score(labels, predicted, average="macro", zero_division=0)))
    print("  micro_f1", repr(f1_score(labels, predicted, average="micro", zero_division=0)))
    print("  precision", precision_score(labels, predicted, average=None, zero_division=0).tolist())
    print("  recall", recall_score(labels, predicted, average=None, zero_division=0).tolist())
    print("  f1", f1_score(labels, predicted, average=None, zero_division=0).tolist())
    for key, value in more.items():
        print(f"  {key}", value)


def softmax(logits):
    e = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


labels, logits = single(1, 400, 6, 4)  # classes 4 and 5 have no nodes
predicted = logits.argmax(1)
loss = log_loss(labels, softmax(logits), labels=range(6))
show("six classes", labels, predicted, loss=repr(loss), confusion=confusion_matrix(labels, predicted, labels=range(6)).tolist())

labels, logits = single(2, 300, 2, 2)
show("two classes", labels, logits.argmax(1), roc_auc=repr(roc_auc_score(labels, logits[:, 1] - logits[:, 0])))

labels, logits = sets(3, 200, 9)
both = [c for c in range(9) if 0 < labels[:, c].sum() < len(labels)]
sigmoid = 1 / (1 + np.exp(-logits.astype(np.float64)))
loss = np.mean([log_loss(labels[:, c], sigmoid[:, c], labels=[0, 1]) for c in range(9)])
show("sets of nine", labels, (logits > 0).astype(int), loss=repr(loss), roc_auc=repr(roc_auc_score(labels[:, both], logits[:, both], average="macro")))
