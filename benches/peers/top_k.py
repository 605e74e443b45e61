"""The best 100 of 2^22 vectors for each of some queries, with faiss's flat index on two threads.

    pip install faiss-cpu
    python benches/peers/top_k.py [QUERIES]
"""

import sys
import time

import faiss
import numpy as np

NODES, WIDTH, BEST = 1 << 22, 128, 100
queries = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
faiss.omp_set_num_threads(2)
vectors = np.random.default_rng(1).standard_normal((NODES, WIDTH), dtype=np.float32)
index = faiss.IndexFlatIP(WIDTH)
index.add(vectors)
begin = time.perf_counter()
index.search(vectors[:queries], BEST)
seconds = time.perf_counter() - begin
print(f"faiss {faiss.__version__}: {seconds:.2f} s, {2 * queries * NODES * WIDTH / seconds / 1e9:.1f} Gflop/s")
