"""Plots of a run: its progress, and the network's predictions for test images."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

INK, TRAIN, TEST, WRONG = "#333333", "#8899aa", "#1f77b4", "#c0392b"


def save_curves(history: list[dict[str, Any]], path: Path) -> None:
    """Plots loss and accuracy by epoch, for training and test."""
    epochs = [h["epoch"] for h in history]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, name, scale in ((axes[0], "loss", 1), (axes[1], "accuracy", 100)):
        higher = name if history[-1][name] > history[-1]["test_" + name] else "test_" + name
        for key, label, color in ((name, "training", TRAIN), ("test_" + name, "test", TEST)):
            values = [scale * h[key] for h in history]
            axis.plot(epochs, values, marker="o", markersize=4, color=color, label=label)
            axis.annotate(
                f"{values[-1]:.3f}" if scale == 1 else f"{values[-1]:.1f} %",
                (epochs[-1], values[-1]),
                xytext=(6, 0),
                textcoords="offset points",
                va="bottom" if key == higher else "top",
                color=color,
                fontsize=9,
            )
        axis.set_title(name if scale == 1 else "accuracy, %", loc="left", fontsize=10, color=INK)
        axis.set_xticks(epochs)
        axis.set_xlabel("epoch", fontsize=9)
        axis.margins(x=0.16)
        axis.grid(axis="y", color="#e6e6e6")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def save_predictions(
    images: Any, labels: Any, predicted: Any, classes: list[str], path: Path, rows: int = 5, columns: int = 10
) -> None:
    """Plots the first test images with the predicted class; a mistake is framed, with its true class
    below.
    """
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * 1.05, rows * 1.35), layout="constrained", squeeze=False
    )
    accuracy = (predicted == labels).sum().item() / len(labels)
    figure.suptitle(
        f"Test images and predicted class (mistakes framed, with the true class); {accuracy:.1%} right of "
        f"{len(labels):,}",
        fontsize=10,
        color=INK,
    )
    for k, axis in enumerate(axes.flat):
        axis.set_xticks([])
        axis.set_yticks([])
        if k >= len(labels):
            axis.set_visible(False)
            continue
        axis.imshow(images[k, 0].tolist(), cmap="gray_r")
        guess, truth = int(predicted[k]), int(labels[k])
        right = guess == truth
        axis.set_title(classes[guess], fontsize=7.5, pad=3, color=INK if right else WRONG)
        axis.set_xlabel("" if right else f"is: {classes[truth]}", fontsize=7, labelpad=2, color=WRONG)
        for spine in axis.spines.values():
            spine.set_color("#cccccc" if right else WRONG)
            spine.set_linewidth(0.8 if right else 2)
    figure.savefig(path, dpi=130)
    plt.close(figure)
