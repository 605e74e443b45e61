//! Graphs in other formats of text, text in other encodings, and what warnings say.

use grappa_input::Conversion;

use super::{Case, edges, of};

pub(super) const TEXT: &[Case] = &[
    // Graphs of other formats.
    edges(
        Conversion::GraphMlToEdges,
        "import networkx as nx\nnx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 'g.graphml')",
        &["networkx"],
        "--edges g.graphml",
        "--edges NEW",
    ),
    of(
        Conversion::GexfToEdges,
        "import networkx as nx\nnx.write_gexf(nx.Graph([(0, 1)]), 'g.gexf')",
        &["networkx"],
        "--edges g.gexf",
        "--edges NEW",
        "0>1&1>0",
    ),
    edges(
        Conversion::GmlToEdges,
        "import networkx as nx\nnx.write_gml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 'g.gml')",
        &["networkx"],
        "--edges g.gml",
        "--edges NEW",
    ),
    of(
        Conversion::PajekToEdges,
        "import networkx as nx\nnx.write_pajek(nx.DiGraph([('ann', 'New York')]), 'g.net')",
        &["networkx"],
        "--edges g.net --ids string",
        "--edges NEW --ids string",
        "ann>New York",
    ),
    edges(
        Conversion::DotToEdges,
        "open('g.dot', 'w').write('digraph {\\n0 -> 1;\\n1 -> 2;\\n2 -> 0;\\n}\\n')",
        &["networkx", "pydot"],
        "--edges g.dot",
        "--edges NEW",
    ),
    edges(
        Conversion::DimacsToEdges,
        "$printf 'c by hand\\np sp 3 3\\na 1 2 9\\na 2 3 9\\na 3 1 9\\n' > g.gr",
        &["$awk"],
        "--edges g.gr",
        "--edges NEW",
    ),
    of(
        Conversion::NTriplesToEdges,
        "$printf '<a> <knows> <b> .\\n<a> <name> \"ann\" .\\n<b> <knows> <a> .\\n' > g.nt",
        &["$awk"],
        "--edges g.nt --ids string",
        "--edges NEW --ids string",
        "<a>><b>&<b>><a>",
    ),
    of(
        Conversion::MetisToEdges,
        "$printf '3 2\\n2\\n1 3\\n2\\n' > g.graph",
        &["$awk"],
        "--edges g.graph",
        "--edges NEW",
        "0>1&1>0&1>2&2>1",
    ),
    of(
        Conversion::ListsToEdges,
        "$printf '0 1 2 3\\n1 2\\n2 0 1 3 4\\n3\\n' > g.adj",
        &["$awk"],
        "--edges g.adj",
        "--edges NEW",
        "0>1&0>2&0>3&1>2&2>0&2>1&2>3&2>4",
    ),
    of(
        Conversion::ListsToEdges,
        "$printf 'a,b,c,d\\nb,c\\nc,a,b,d,e\\nd\\n' > g.csv",
        &["$awk"],
        "--edges g.csv --ids string",
        "--edges NEW --ids string",
        "a>b&a>c&a>d&b>c&c>a&c>b&c>d&c>e",
    )
    .with("-F',' "),
    edges(
        Conversion::JsonToText,
        "import json, networkx as nx\njson.dump(nx.node_link_data(nx.DiGraph([(0, 1), (1, 2), (2, 0)])), open('g.json', 'w'))",
        &["networkx"],
        "--edges g.json",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::JsonToText,
        "$printf '[[0, 1], [1, 2], [2, 0]]' > e.json",
        &[],
        "--edges e.json",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::JsonToText,
        "$printf '{\"0\": [1], \"1\": [2], \"2\": [0]}' > e.json",
        &[],
        "--edges e.json",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::JsonLinesToText,
        "$printf '{\"src\": 0, \"dst\": 1}\\n{\"src\": 1, \"dst\": 2}\\n{\"src\": 2, \"dst\": 0}\\n' > e.jsonl",
        &[],
        "--edges e.jsonl",
        "--edges NEW.csv",
    ),
    // Text.
    edges(
        Conversion::Utf16ToUtf8,
        "open('e.csv', 'w', encoding='utf-16').write('src,dst\\n0,1\\n1,2\\n2,0\\n')",
        &["$iconv"],
        "--edges e.csv",
        "--edges NEW.csv",
    ),
    of(
        Conversion::Latin1ToUtf8,
        "open('e.csv', 'w', encoding='latin1').write('J\\u00fcrgen,Zo\\u00eb\\n')",
        &["$iconv"],
        "--edges e.csv --ids string",
        "--edges NEW.csv --ids string",
        "J\u{fc}rgen>Zo\u{eb}",
    ),
    edges(
        Conversion::MacLineEnds,
        "$printf '0 1\\r1 2\\r2 0\\r' > e.csv",
        &["$tr"],
        "--edges e.csv",
        "--edges NEW.csv",
    ),
    of(
        Conversion::DecimalCommas,
        "$printf '0;1;0,5\\n1;0;2,5\\n' > e.txt",
        &["$tr"],
        "--edges e.txt --separator semicolon",
        "--edges NEW",
        "0>1:0.5&1>0:2.5",
    ),
    edges(
        Conversion::RemoveComments,
        "$printf '0,1\\n# more\\n1,2\\n2,0\\n' > e.csv",
        &["$grep"],
        "--edges e.csv",
        "--edges NEW.csv",
    ),
    of(
        Conversion::PlainFields,
        "open('e.csv', 'w').write('\"New\\nYork\",Rome\\nRome,\"the \\\\\"big\\\\\" one\"\\n')",
        &[],
        "--edges e.csv --ids string",
        "--edges NEW.csv --ids string",
        "New York>Rome&Rome>the \"big\" one",
    ),
    edges(
        Conversion::PlainText,
        "open('e.txt', 'w').write('0\\u00a01\\n\\u200b1 \\uff12\\u20282 0\\x1a\\n')",
        &[],
        "--edges e.txt",
        "--edges NEW",
    ),
    edges(
        Conversion::RemoveNuls,
        "$printf '0 1\\n1 2\\n2 0\\n\\000\\000\\000\\000' > e.txt",
        &["$tr"],
        "--edges e.txt",
        "--edges NEW.txt",
    ),
    edges(
        Conversion::DigitsOnly,
        "$printf '(0, 1)\\n(1, 2)\\n(2, 0)\\n' > e.txt",
        &["$tr"],
        "--edges e.txt",
        "--edges NEW",
    ),
    edges(
        Conversion::DigitsOnly,
        "$printf '0->1\\n1->2\\n2->0\\n' > e.txt",
        &["$tr"],
        "--edges e.txt",
        "--edges NEW",
    ),
    edges(
        Conversion::TrimEnds,
        "$printf '0,1\\n1,2,\\n2,0\\n' > e.csv",
        &["$sed"],
        "--edges e.csv",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::ListToText,
        "$printf '[(0, 1), (1, 2), (2, 0)]' > e.txt",
        &[],
        "--edges e.txt",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::RemoveHeader,
        "$printf 'sep=;\\r\\nsrc;dst\\r\\n0;1\\r\\n1;2\\r\\n2;0\\r\\n' > e.csv",
        &["$tail"],
        "--edges e.csv",
        "--edges NEW.csv",
    ),
    // As R writes a table.
    edges(
        Conversion::NameFirstColumn,
        "$printf 'src,dst\\n1,0,1\\n2,1,2\\n3,2,0\\n' > e.csv",
        &["$sed"],
        "--edges e.csv",
        "--edges NEW.csv --src src --dst dst",
    )
    .with("/row,/"),
    // What warnings say.
    of(
        Conversion::Transpose,
        "import numpy as np\nnp.save('e.npy', [[0, 1], [1, 0]])",
        &["numpy"],
        "$grappa-ingest --edges e.npy",
        "--edges NEW.npy",
        "0>1&1>0",
    ),
    of(
        Conversion::OneHotToClasses,
        "import numpy as np\nnp.save('y.npy', [[0, 1], [1, 0]]); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "$grappa-ingest --labels y.npy --edges e.txt",
        "--labels NEW.npy --edges e.txt",
        "0>1",
    )
    .labels("1 0"),
    of(
        Conversion::RemoveHeader,
        "$printf 'node_id\\nn0\\nn1\\n' > i.csv && printf 'n0 n1\\n' > e.txt",
        &["$tail"],
        "$grappa-ingest --node-ids i.csv --edges e.txt --ids string",
        "--node-ids NEW.csv --edges e.txt --ids string",
        "n0>n1",
    ),
    // The pointer of a file that is fetched from nowhere: the command leaves it as it is.
    of(
        Conversion::FetchLfs,
        "$printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:1\\nsize 9\\n' > e.csv && printf '0 1\\n' > e.txt && git \
         init -q",
        &["$git-lfs"],
        "--edges e.csv",
        "--edges e.txt",
        "0>1",
    ),
    // A dataset as the saver of OGB writes it.
    of(
        Conversion::OgbSplitToText,
        "import os, torch\n\
         os.makedirs('d/raw'); os.makedirs('d/split/time')\n\
         open('d/raw/edge.csv', 'w').write('0,1\\n1,2\\n'); open('d/raw/num-node-list.csv', 'w').write('3\\n')\n\
         ids = {n: torch.tensor([i]) for i, n in enumerate(('train', 'valid', 'test'))}\n\
         torch.save(ids, 'd/split/time/split_dict.pt')",
        &["torch"],
        "$grappa-ingest --ogb d",
        "--edges d/raw/edge.csv --train d/split/time/train.csv",
        "0>1&1>2",
    ),
];
