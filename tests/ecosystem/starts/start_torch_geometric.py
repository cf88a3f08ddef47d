"""Graphs: convolutions, batches, loaders and a trained network."""

import torch
from made import data, fill, show, train, whole
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    SAGEConv,
    TransformerConv,
    global_mean_pool,
)
from torch_geometric.transforms import AddSelfLoops, ToUndirected
from torch_geometric.utils import degree, scatter, softmax, to_dense_adj

edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])
graph = ToUndirected()(Data(x=data(5, 4), edge_index=edges, y=whole(5, below=3)))
show("edges", graph.edge_index)
for layer in (
    GCNConv(4, 3),
    SAGEConv(4, 3),
    GATConv(4, 3, heads=2),
    GINConv(torch.nn.Linear(4, 3)),
    TransformerConv(4, 3),
):
    show(type(layer).__name__, fill(layer)(graph.x, graph.edge_index))
first, second = fill(GCNConv(4, 8)), fill(GCNConv(8, 3), seed=1)


def loss():
    return torch.nn.functional.cross_entropy(
        second(first(graph.x, graph.edge_index).relu(), graph.edge_index), graph.y
    )


show("losses", train([*first.parameters(), *second.parameters()], loss, lr=0.5))
batch = next(iter(DataLoader([graph, AddSelfLoops()(graph)], batch_size=2)))
show("batch", batch.batch)
show("pooled", global_mean_pool(batch.x, batch.batch))
show("degree", degree(graph.edge_index[0]))
show("adjacency", to_dense_adj(graph.edge_index))
show("softmax", softmax(data(7), torch.tensor([0, 0, 1, 1, 1, 2, 2])))
show("scatter", scatter(data(7, 2), torch.tensor([0, 0, 1, 1, 1, 2, 2]), reduce="max"))
