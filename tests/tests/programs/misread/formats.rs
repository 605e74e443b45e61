//! Files of other formats than lists of edges, and files that our programs write.

use super::{Case, Run, read, refused};
use grappa_tests::files::memory_folder;

const MTX: &str = "--edges e.mtx";
const STRINGS: &str = "--edges e.txt --ids string";

const CASES: &[Case] = &[
    read(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n%\n3 3 2\n1 2\n3 1\n",
        )],
        MTX,
        "Matrix Market",
        "0>1&2>0",
    ),
    read(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate real symmetric\n% by scipy\n3 3 3\n2 1 0.5\n3 3 4\n3 2 1e0\n",
        )],
        MTX,
        "symmetric Matrix Market",
        "0>1:0.5&1>0:0.5&2>2:4&1>2:1&2>1:1",
    ),
    read(
        &[(
            "e.txt",
            "%%matrixmarket Matrix Coordinate Integer General\n4 4 1\n1 4 7\n",
        )],
        "--edges e.txt",
        "Matrix Market",
        "0>3:7",
    ),
    // The size of the matrix is the number of nodes.
    read(
        &[
            (
                "e.mtx",
                "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n",
            ),
            ("x.csv", "0.5\n1.5\n2.5\n"),
        ],
        "--edges e.mtx --features x.csv",
        "features from",
        "0>1",
    )
    .with_features("0.5 1.5 2.5"),
    refused(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n0 2\n",
        )],
        MTX,
        "e.mtx:3: a row or column is not from 1 to 3",
        "",
        "",
    ),
    refused(
        &[("e.mtx", "%%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n1\n")],
        MTX,
        "matrix in coordinates",
        "scipy.io",
        "",
    ),
    refused(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n",
        )],
        MTX,
        "general or symmetric",
        "scipy.io",
        "",
    ),
    refused(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 3\n",
        )],
        MTX,
        "2 rows and 3 columns",
        "sp.bmat",
        "",
    ),
    refused(
        &[(
            "e.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n3 1\n",
        )],
        MTX,
        "expected 3 entries, as the size of the matrix says, found 2",
        "",
        "",
    ),
    // METIS: a triangle, and a triangle with a tail.
    refused(
        &[("g.graph", "3 3\n2 3\n1 3\n1 2\n")],
        "--edges g.graph",
        "METIS",
        "grep -v",
        "0>1&0>2&1>0&1>2&2>0&2>1",
    ),
    refused(
        &[("g.graph", "% by hand\n4 4\n2 3\n1 3\n1 2 4\n3\n")],
        "--edges g.graph",
        "METIS",
        "grep -v",
        "0>1&0>2&1>0&1>2&2>0&2>1&2>3&3>2",
    ),
    // A cycle whose first edge is a loop is no graph of METIS.
    read(
        &[("e.txt", "4 4\n1 2\n2 3\n3 4\n4 1\n")],
        "--edges e.txt",
        "text",
        "4>4&1>2&2>3&3>4&4>1",
    ),
    refused(
        &[("e.txt", "0 1 2 3\n1 2 3 4 5\n2 3 4 5\n")],
        "--edges e.txt",
        "adjacency lists",
        "awk '",
        "0>1&0>2&0>3&1>2&1>3&1>4&1>5&2>3&2>4&2>5",
    ),
    refused(
        &[("e.txt", "a: b c d\nb: c d e f\nc: a b d e\n")],
        STRINGS,
        "adjacency lists",
        "awk -F",
        "a>b&a>c&a>d&b>c&b>d&b>e&b>f&c>a&c>b&c>d&c>e",
    ),
    refused(
        &[("e.txt", "c shortest paths\np sp 3 2\na 1 2 5\na 2 3 6\n")],
        STRINGS,
        "DIMACS",
        "awk '$1",
        "0>1&1>2",
    ),
    refused(
        &[(
            "e.txt",
            "<http://a> <http://p> <http://b> .\n<http://b> <http://p> \"text\" .\n",
        )],
        STRINGS,
        "N-Triples",
        "awk '$3",
        "<http://a>><http://b>",
    ),
    refused(
        &[("e.txt", "<?xml version=\"1.0\"?>\n<graphml xmlns=\"x\">\n")],
        STRINGS,
        "GraphML",
        "read_graphml",
        "",
    ),
    refused(
        &[("e.txt", "<?xml version=\"1.0\"?>\n<gexf>\n")],
        STRINGS,
        "GEXF",
        "read_gexf",
        "",
    ),
    refused(&[("e.txt", "graph [\n  node [\n")], STRINGS, "GML", "read_gml", ""),
    refused(
        &[("e.txt", "*Vertices 2\n1 \"a\"\n")],
        STRINGS,
        "Pajek",
        "read_pajek",
        "",
    ),
    refused(
        &[("e.txt", "digraph g {\n  a -> b;\n}\n")],
        STRINGS,
        "Graphviz",
        "read_dot",
        "",
    ),
    refused(&[("e.txt", "{\"nodes\": []}\n")], STRINGS, "JSON", "json.load", ""),
];

#[test]
fn other_formats_are_read_or_refused_with_a_command_that_converts_them() {
    CASES.iter().for_each(Case::check);
}

#[test]
fn exported_text_is_read_back() {
    let run = Run {
        folder: memory_folder(),
    };
    let text =
        "source,target,weight\n#ai,#ml,1\n\"a,b\",%x,2\n\"say \"\"a\"\"\",source,3\nNew York,a;b,4\nsource,target,5\n";
    std::fs::write(run.path("e.csv"), text).unwrap();
    run.ingest("--edges e.csv --ids string").unwrap();
    let store = grappa_engine::Store::open(&run.path("out.grappa")).unwrap();
    let budget = grappa_engine::export::ExportBudget {
        threads: 1,
        memory: 64 << 20,
    };
    let edges = "#ai>#ml:1&a,b>%x:2&New York>a&b:4&source>target:5";
    for (name, format) in [
        ("back.tsv", grappa_engine::export::edges::EdgeFormat::Tsv),
        ("back.csv", grappa_engine::export::edges::EdgeFormat::Csv),
        ("back", grappa_engine::export::edges::EdgeFormat::Tsv),
    ] {
        let export = |name: &str, store: &grappa_engine::Store| {
            grappa_engine::export::edges::export_edges(store, &run.path(name), format, &budget, &grappa_engine::Silent)
                .unwrap();
            std::fs::read_to_string(run.path(name)).unwrap()
        };
        let first = export(name, &store);
        let said = run.ingest(&format!("--edges {name} --ids string")).unwrap();
        let again = grappa_engine::Store::open(&run.path("out.grappa")).unwrap();
        let second = export(&format!("again-{name}"), &again);
        assert_eq!(first, second, "{edges}\n{said}");
    }
}
