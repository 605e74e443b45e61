//! Files of other formats than lists of edges, and files that our programs write.

use super::{IngestFolder, check_inputs};

const CASES: &[&str] = &[
    "--edges e.mtx",
    "e.mtx: %%MatrixMarket matrix coordinate pattern general\n%\n3 3 2\n1 2\n3 1\n | Matrix Market | 0>1&2>0",
    "e.mtx: %%MatrixMarket matrix coordinate real symmetric\n% by scipy\n3 3 3\n2 1 0.5\n3 3 4\n3 2 1e0\n \
     | symmetric Matrix Market | 0>1:0.5&1>0:0.5&2>2:4&1>2:1&2>1:1",
    "e.mtx: %%MatrixMarket matrix coordinate pattern general\n3 3 1\n0 2\n \
     | !e.mtx:3: a row or column is not from 1 to 3",
    "e.mtx: %%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n1\n | !matrix in coordinates | scipy.io",
    "e.mtx: %%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n | !general or symmetric | scipy.io",
    "e.mtx: %%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 3\n | !2 rows and 3 columns | sp.bmat",
    "e.mtx: %%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n3 1\n \
     | !expected 3 entries, as the size of the matrix says, found 2",
    "--edges e.txt",
    "e.txt: %%matrixmarket Matrix Coordinate Integer General\n4 4 1\n1 4 7\n | Matrix Market | 0>3:7",
    // A cycle whose first edge is a loop is no graph of METIS.
    "e.txt: 4 4\n1 2\n2 3\n3 4\n4 1\n | text | 4>4&1>2&2>3&3>4&4>1",
    "e.txt: 0 1 2 3\n1 2 3 4 5\n2 3 4 5\n | !adjacency lists | awk ' | 0>1&0>2&0>3&1>2&1>3&1>4&1>5&2>3&2>4&2>5",
    "--edges e.mtx --features x.csv",
    // The size of the matrix is the number of nodes.
    "e.mtx: %%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n + x.csv: 0.5\n1.5\n2.5\n | features from \
     | 0>1 | 0.5 1.5 2.5",
    "--edges g.graph",
    // METIS: a triangle, and a triangle with a tail.
    "g.graph: 3 3\n2 3\n1 3\n1 2\n | !METIS | grep -v | 0>1&0>2&1>0&1>2&2>0&2>1",
    "g.graph: % by hand\n4 4\n2 3\n1 3\n1 2 4\n3\n | !METIS | grep -v | 0>1&0>2&1>0&1>2&2>0&2>1&2>3&3>2",
    "--edges e.txt --ids string",
    "e.txt: a: b c d\nb: c d e f\nc: a b d e\n | !adjacency lists | awk -F \
     | a>b&a>c&a>d&b>c&b>d&b>e&b>f&c>a&c>b&c>d&c>e",
    "e.txt: c shortest paths\np sp 3 2\na 1 2 5\na 2 3 6\n | !DIMACS | awk '$1 | 0>1&1>2",
    "e.txt: <http://a> <http://p> <http://b> .\n<http://b> <http://p> \"text\" .\n | !N-Triples | awk '$3 \
     | <http://a>><http://b>",
    "e.txt: <?xml version=\"1.0\"?>\n<graphml xmlns=\"x\">\n | !GraphML | read_graphml",
    "e.txt: <?xml version=\"1.0\"?>\n<gexf>\n | !GEXF | read_gexf",
    "e.txt: graph [\n  node [\n | !GML | read_gml",
    "e.txt: *Vertices 2\n1 \"a\"\n | !Pajek | read_pajek",
    "e.txt: digraph g {\n  a -> b;\n}\n | !Graphviz | read_dot",
    "e.txt: {\"nodes\": []}\n | !JSON | json.load",
];

#[test]
fn other_formats_are_read_or_refused_with_a_command_that_converts_them() {
    check_inputs(None, CASES);
}

#[test]
fn exported_text_is_read_back() {
    let folder = IngestFolder::new();
    let text = "source,target,weight\n#ai,#ml,1\n\"a,b\",%x,2\n\"say \"\"a\"\"\",source,3\nNew York,a;b,4\n\
                source,target,5\n";
    for name in ["back.tsv", "back.csv", "back"] {
        folder.write("e.csv", text);
        folder.ingest("--edges e.csv --ids string").unwrap();
        let first = folder.exported(name);
        let said = folder.ingest(&format!("--edges {name} --ids string")).unwrap();
        assert_eq!(first, folder.exported(&format!("again-{name}")), "{said}");
    }
}
