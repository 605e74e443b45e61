//! Separators, comments, headers and columns of edges.

use grappa_tests::archive::gzip;

use super::{IngestFolder, check_inputs};

/// Lines that begin with # or %.
const COMMENTS: &[&str] = &[
    "--edges e.csv --ids string",
    "e.csv: src,dst\nann,#ai\n#ai,#ml\n#ml,bob\n | separated by commas, with a header; source src; target dst \
     | ann>#ai&#ai>#ml&#ml>bob",
    "e.csv: #ai,bob\nann,bob\n | !e.csv:1 | --comments no | #ai>bob&ann>bob",
    "e.csv: #made,today\nann,bob\n | !e.csv:1 | --comments yes | ann>bob",
    "--edges e.txt --ids string",
    "e.txt: ann\t#ai\n#ai\t#ml\n%x\ty\n | separated by tabs | ann>#ai&#ai>#ml&%x>y",
    "e.txt: a #b\n#b c\n | separated by spaces | a>#b&#b>c",
    "e.txt: # Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\na\tb\nb\tc\n | 2 comment lines not read | a>b&b>c",
    "e.txt: #src\tdst\na\tb\n | 1 comment line | a>b",
    "e.txt: #ai\t#ml\n#ml\tbob\n | !may be a comment, or an edge | --comments no | #ai>#ml&#ml>bob",
    "--edges e.txt",
    "e.txt: % asym positive\n0 1\n1 2\n | 1 comment line | 0>1&1>2",
    "e.txt: 0 1\n# more\n1 2\n | !e.txt:2 | grep -v '^[#%]'",
];

/// What separates columns.
const SEPARATORS: &[&str] = &[
    "--edges e.txt --ids string",
    "e.txt: alice, bob\nbob, carol\n | separated by commas | alice>bob&bob>carol",
    "e.txt: New York,Boston\nBoston,Paris\n | separated by commas | New York>Boston&Boston>Paris",
    "e.txt: a;b\nb;c\n | separated by semicolons | a>b&b>c",
    "e.txt: a|b\nb|c\n | separated by bars | a>b&b>c",
    "e.txt: New York, NY\tBoston, MA\n | separated by tabs | New York, NY>Boston, MA",
    "e.txt: A B C D\tp\nE F\tq\nG H I J K\tr\nL M N\ts s s\n | separated by tabs | A B C D>p&E F>q&G H I J K>r&L M N>s s s",
    "e.txt: \"a;b\";c\n | separated by semicolons | a;b>c",
    "e.txt: alice bob\nNew York,Boston\n | !e.txt:2: the columns are separated by spaces | --separator spaces \
     | alice>bob&New>York,Boston",
    "e.txt: a,b\nc d\n | !e.txt:2 | --on-bad-line skip",
    "e.txt: a;b,c\nd;e,f\n | !by commas or by semicolons | --separator semicolon | a>b,c&d>e,f",
    "e.txt: a;b,c\nd;e,f\n | !by commas or by semicolons | --separator comma | a;b>c&d;e>f",
    "e.txt: x:y\nz:w\n | !e.txt:1 | give --separator",
    "--edges e.csv --ids string",
    "e.csv: source;target\na;b\n | semicolons, with a header | a>b",
    "e.csv: a\tb\nb\tc\n | separated by tabs | a>b&b>c",
    "--edges e.txt",
    "e.txt: 1;2\n2;3\n | separated by semicolons | 1>2&2>3",
    "e.txt: 1|2|0.5\n2|3|1\n | separated by bars | 1>2:0.5&2>3:1",
    "e.txt: 1, 2\n2, 3\n | separated by commas | 1>2&2>3",
];

/// Headers, and names of columns.
const COLUMNS: &[&str] = &[
    "--edges e.tsv --ids string",
    "e.tsv: source\ttarget\na\tb\n | with a header | a>b",
    "e.tsv: source\ttarget\tweight\na\tb\t2\n | weight weight | a>b:2",
    "--edges e.csv --ids string",
    "e.csv: dst,src\na,b\n | source src; target dst | b>a",
    "e.csv: :START_ID,:END_ID\na,b\n | source :START_ID | a>b",
    "e.csv: head,tail\na,b\n | source head | a>b",
    "e.csv: tail,head\na,b\n | !from tail to head | --src tail --dst head | a>b",
    "e.csv: tail,head\na,b\n | !from tail to head | --src head --dst tail | b>a",
    "e.csv: subject,relation,object\na,likes,b\n | !relation | --src subject --dst object | a>b",
    "--edges e.csv",
    "e.csv: weight,src,dst\n2,0,1\n | weight weight | 0>1:2",
    "e.csv: src,dst,time\n0,1,5\n | !time | --src src --dst dst | 0>1",
    "e.csv: src,dst,time\n0,1,5\n | !time | --src src --dst dst --weight time | 0>1:5",
    "e.csv: who,whom,since\n0,1,5\n | !no two columns | --src who --dst whom | 0>1",
    "--edges e.csv --ids string --src buyer --dst seller",
    "e.csv: time,buyer,seller\n5,a,b\n | left out: time | a>b",
    "--edges e.txt --src 1 --dst 3 --weight 4",
    "e.txt: 0 9 1 7\n1 9 2 8\n | source 1; target 3 | 0>1:7&1>2:8",
    "--edges e.txt --ids string",
    "e.txt: a likes b\nb likes c\n | !not a weight | --src 1 --dst 3 | a>b&b>c",
    "--edges e.txt",
    "e.txt: 0 1 2\n1 2 0\n2 0 1\n | !third column has ids | --src 1 --dst 3 | 0>2&1>0&2>1",
    "e.txt: 0 1 2\n1 2 0\n2 0 1\n | !third column has ids | --weight 3 | 0>1:2&1>2:0&2>0:1",
    "e.txt: 0 1 5 6\n1 2 5 6\n | !found 4 | --src 1 --dst 2 | 0>1&1>2",
    "--edges e.csv --on-bad-line skip",
    "e.csv: src,dst,kind\n0,1,cites\n1,2,cites\n | !kind | --src src --dst dst | 0>1&1>2",
    "--edges e.txt --on-bad-line skip",
    "e.txt: 0 1 cites\n1 2 cites\n | !not a weight | --src 1 --dst 2 | 0>1&1>2",
    "--edges e.csv --src x",
    "e.csv: a,b\n0,1\n | !no column x",
];

#[test]
fn comments_separators_and_columns_of_edges_are_read_as_they_are_meant() {
    for table in [COMMENTS, SEPARATORS, COLUMNS] {
        check_inputs(None, table);
    }
}

/// Files that are there twice.
const TWICE: &[&str] = &[
    "--edges in/p.csv in/p.csv",
    " | !named twice",
    "--edges in in/p.csv",
    " | !named twice",
    "--edges in",
    "in/p.csv~: 0,1\n | !p.csv~: this looks like the data of",
    "in/p.csv.bak: 0,1\n | !p.csv.bak",
    "in/p.csv.gz:  | !p.csv.gz",
    "in/p (1).csv: 0,1\n | !p (1).csv",
    "in/p copy.csv: 0,1\n | !p copy.csv",
    "in/q.csv: src,dst\n2,0\n | and 1 more",
    "--edges in/p.csv in/p.csv.orig",
    "in/p.csv.orig: 0,1\n | !p.csv.orig",
    "--edges in other",
    "other/p.csv: src,dst\n2,0\n | and 1 more",
];

#[test]
fn a_file_that_is_there_twice_is_refused() {
    check_inputs(Some(("in/p.csv", "src,dst\n0,1\n1,2\n", "0>1&1>2&2>0")), TWICE);
}

/// Lines that are no edges.
const BAD_LINES: &[&str] = &[
    "--edges e.tsv",
    "e.tsv: 0 1\n1 x\n | !e.tsv:2: && --on-bad-line skip",
    "e.tsv: # ids\n0 1\n1\n | !e.tsv:3: && --on-bad-line skip",
    "e.tsv: 0 1\n1 2\n3 | !e.tsv:3: && --on-bad-line skip",
    "e.tsv: 0 1\n\n-1 2\n | !e.tsv:3: a node id is negative && --on-bad-line skip",
    "e.tsv: 0 1\n1.5 2\n | !e.tsv:2: && --on-bad-line skip",
    "e.tsv: 0 1\n1099511627776 2\n | !e.tsv:2: a node id is too large && --on-bad-line skip",
    "e.tsv: 0 1\n99999999999999999999999 2\n | !e.tsv:2: a node id is too large && --on-bad-line skip",
    "e.tsv: 0 1 0.5\n1 2 heavy\n | !e.tsv:2: && --on-bad-line skip",
    "e.tsv: 0 1 0.5\n1 2 inf\n | !e.tsv:2: && --on-bad-line skip",
    "e.tsv: 0 1 0.5\n1 2\n | !e.tsv:2: && --on-bad-line skip",
    "e.tsv: 0 1\n1 2 3 4\n | !e.tsv:2: && --on-bad-line skip",
    "--edges e.tsv --nodes 10",
    "e.tsv: 0 1\n1 2\n2 10\n | !e.tsv:3: a node id is not below the number of nodes, 10 && --on-bad-line skip",
];

#[test]
fn a_bad_line_is_named_with_its_number_and_the_remedy() {
    check_inputs(None, BAD_LINES);
    // Far into a large file, in the second of two files, and inside an archive.
    let mut lines: Vec<String> = (0..200_000).map(|k| format!("{} {}\n", k % 1000, k % 777)).collect();
    lines[123_456] = "12 -7\n".to_owned();
    let folder = IngestFolder::new();
    folder.write("good.tsv", "0 1\n");
    folder.write("deep.tsv", lines.concat());
    folder.write("deep.tsv.gz", gzip(lines.concat()));
    for (files, error) in [
        ("deep.tsv", "deep.tsv:123457: a node id is negative"),
        ("good.tsv deep.tsv", "deep.tsv:123457: "),
        ("deep.tsv.gz", "deep.tsv.gz:123457: "),
    ] {
        folder.expect_error(&format!("--edges {files}"), &[error], files);
    }
}
