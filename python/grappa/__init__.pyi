from . import model as model, ops as ops, pyg as pyg
from ._grappa import Error as Error, __version__ as __version__
from .embedding import Embedding as Embedding
from .generation import generate as generate
from .graph import Graph as Graph, NodeType as NodeType, Relation as Relation, open as open
from .ingestion import ingest as ingest
from .layers import LayerBatch as LayerBatch, TypedLayerBatch as TypedLayerBatch
from .layerwise import inference as inference
from .links import LinkBatch as LinkBatch, LinkNeighborLoader as LinkNeighborLoader
from .loader import Batch as Batch, Block as Block, NeighborLoader as NeighborLoader
from .runs import Run as Run, train as train
from .sparse_adam import SparseAdam as SparseAdam
from .store import Store as Store
