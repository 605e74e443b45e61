//! Separators, comments, headers and columns of edges.

use super::{Case, read, refused};

const STRINGS: &str = "--edges e.txt --ids string";
const CSV: &str = "--edges e.csv --ids string";
const DENSE: &str = "--edges e.txt";

/// Lines that begin with # or %.
const COMMENTS: &[Case] = &[
    read(
        &[("e.csv", "src,dst\nann,#ai\n#ai,#ml\n#ml,bob\n")],
        CSV,
        "separated by commas, with a header; source src; target dst",
        "ann>#ai&#ai>#ml&#ml>bob",
    ),
    read(
        &[("e.txt", "ann\t#ai\n#ai\t#ml\n%x\ty\n")],
        STRINGS,
        "separated by tabs",
        "ann>#ai&#ai>#ml&%x>y",
    ),
    read(
        &[("e.txt", "a #b\n#b c\n")],
        STRINGS,
        "separated by spaces",
        "a>#b&#b>c",
    ),
    read(
        &[("e.txt", "# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\na\tb\nb\tc\n")],
        STRINGS,
        "2 comment lines not read",
        "a>b&b>c",
    ),
    read(&[("e.txt", "#src\tdst\na\tb\n")], STRINGS, "1 comment line", "a>b"),
    read(
        &[("e.txt", "% asym positive\n0 1\n1 2\n")],
        DENSE,
        "1 comment line",
        "0>1&1>2",
    ),
    refused(
        &[("e.txt", "#ai\t#ml\n#ml\tbob\n")],
        STRINGS,
        "may be a comment, or an edge",
        "--comments no",
        "#ai>#ml&#ml>bob",
    ),
    refused(
        &[("e.csv", "#ai,bob\nann,bob\n")],
        CSV,
        "e.csv:1",
        "--comments no",
        "#ai>bob&ann>bob",
    ),
    refused(
        &[("e.csv", "#made,today\nann,bob\n")],
        CSV,
        "e.csv:1",
        "--comments yes",
        "ann>bob",
    ),
    refused(
        &[("e.txt", "0 1\n# more\n1 2\n")],
        DENSE,
        "e.txt:2",
        "grep -v '^[#%]'",
        "",
    ),
];

/// What separates columns.
const SEPARATORS: &[Case] = &[
    read(
        &[("e.txt", "alice, bob\nbob, carol\n")],
        STRINGS,
        "separated by commas",
        "alice>bob&bob>carol",
    ),
    read(
        &[("e.txt", "New York,Boston\nBoston,Paris\n")],
        STRINGS,
        "separated by commas",
        "New York>Boston&Boston>Paris",
    ),
    read(
        &[("e.txt", "a;b\nb;c\n")],
        STRINGS,
        "separated by semicolons",
        "a>b&b>c",
    ),
    read(
        &[("e.csv", "source;target\na;b\n")],
        CSV,
        "semicolons, with a header",
        "a>b",
    ),
    read(&[("e.txt", "a|b\nb|c\n")], STRINGS, "separated by bars", "a>b&b>c"),
    read(&[("e.csv", "a\tb\nb\tc\n")], CSV, "separated by tabs", "a>b&b>c"),
    read(
        &[("e.txt", "New York, NY\tBoston, MA\n")],
        STRINGS,
        "separated by tabs",
        "New York, NY>Boston, MA",
    ),
    read(&[("e.txt", "1;2\n2;3\n")], DENSE, "separated by semicolons", "1>2&2>3"),
    read(
        &[("e.txt", "1|2|0.5\n2|3|1\n")],
        DENSE,
        "separated by bars",
        "1>2:0.5&2>3:1",
    ),
    read(&[("e.txt", "\"a;b\";c\n")], STRINGS, "separated by semicolons", "a;b>c"),
    read(&[("e.txt", "1, 2\n2, 3\n")], DENSE, "separated by commas", "1>2&2>3"),
    refused(
        &[("e.txt", "alice bob\nNew York,Boston\n")],
        STRINGS,
        "e.txt:2: the columns are separated by spaces",
        "--separator spaces",
        "alice>bob&New>York,Boston",
    ),
    refused(&[("e.txt", "a,b\nc d\n")], STRINGS, "e.txt:2", "--on-bad-line skip", ""),
    refused(
        &[("e.txt", "a;b,c\nd;e,f\n")],
        STRINGS,
        "by commas or by semicolons",
        "--separator semicolon",
        "a>b,c&d>e,f",
    ),
    refused(
        &[("e.txt", "a;b,c\nd;e,f\n")],
        STRINGS,
        "by commas or by semicolons",
        "--separator comma",
        "a;b>c&d;e>f",
    ),
    refused(&[("e.txt", "x:y\nz:w\n")], STRINGS, "e.txt:1", "give --separator", ""),
];

/// Headers, and names of columns.
const COLUMNS: &[Case] = &[
    read(
        &[("e.tsv", "source\ttarget\na\tb\n")],
        "--edges e.tsv --ids string",
        "with a header",
        "a>b",
    ),
    read(
        &[("e.tsv", "source\ttarget\tweight\na\tb\t2\n")],
        "--edges e.tsv --ids string",
        "weight weight",
        "a>b:2",
    ),
    read(&[("e.csv", "dst,src\na,b\n")], CSV, "source src; target dst", "b>a"),
    read(
        &[("e.csv", "weight,src,dst\n2,0,1\n")],
        "--edges e.csv",
        "weight weight",
        "0>1:2",
    ),
    read(&[("e.csv", ":START_ID,:END_ID\na,b\n")], CSV, "source :START_ID", "a>b"),
    read(&[("e.csv", "head,tail\na,b\n")], CSV, "source head", "a>b"),
    read(
        &[("e.csv", "time,buyer,seller\n5,a,b\n")],
        "--edges e.csv --ids string --src buyer --dst seller",
        "left out: time",
        "a>b",
    ),
    read(
        &[("e.txt", "0 9 1 7\n1 9 2 8\n")],
        "--edges e.txt --src 1 --dst 3 --weight 4",
        "source 1; target 3",
        "0>1:7&1>2:8",
    ),
    refused(
        &[("e.csv", "tail,head\na,b\n")],
        CSV,
        "from tail to head",
        "--src tail --dst head",
        "a>b",
    ),
    refused(
        &[("e.csv", "tail,head\na,b\n")],
        CSV,
        "from tail to head",
        "--src head --dst tail",
        "b>a",
    ),
    refused(
        &[("e.csv", "src,dst,time\n0,1,5\n")],
        "--edges e.csv",
        "time",
        "--src src --dst dst",
        "0>1",
    ),
    refused(
        &[("e.csv", "src,dst,time\n0,1,5\n")],
        "--edges e.csv",
        "time",
        "--src src --dst dst --weight time",
        "0>1:5",
    ),
    refused(
        &[("e.csv", "who,whom,since\n0,1,5\n")],
        "--edges e.csv",
        "no two columns",
        "--src who --dst whom",
        "0>1",
    ),
    refused(
        &[("e.csv", "subject,relation,object\na,likes,b\n")],
        CSV,
        "relation",
        "--src subject --dst object",
        "a>b",
    ),
    refused(
        &[("e.txt", "a likes b\nb likes c\n")],
        STRINGS,
        "not a weight",
        "--src 1 --dst 3",
        "a>b&b>c",
    ),
    refused(
        &[("e.txt", "0 1 2\n1 2 0\n2 0 1\n")],
        DENSE,
        "third column has ids",
        "--src 1 --dst 3",
        "0>2&1>0&2>1",
    ),
    refused(
        &[("e.txt", "0 1 2\n1 2 0\n2 0 1\n")],
        DENSE,
        "third column has ids",
        "--weight 3",
        "0>1:2&1>2:0&2>0:1",
    ),
    refused(
        &[("e.txt", "0 1 5 6\n1 2 5 6\n")],
        DENSE,
        "found 4",
        "--src 1 --dst 2",
        "0>1&1>2",
    ),
    refused(
        &[("e.csv", "a,b\n0,1\n")],
        "--edges e.csv --src x",
        "no column x",
        "",
        "",
    ),
];

#[test]
fn comments_separators_and_columns_of_edges_are_read_as_they_are_meant() {
    [COMMENTS, SEPARATORS, COLUMNS]
        .into_iter()
        .flatten()
        .for_each(Case::check);
}
