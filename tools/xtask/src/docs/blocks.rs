//! The commands in a page.

/// A block of commands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of the first command, from 1.
    pub line: usize,
    pub language: Language,
    /// The text without prompts.
    pub text: String,
    pub runs: Runs,
}

impl Block {
    /// Whether it runs Python: as its language, or by torchrun.
    pub fn needs_python(&self) -> bool {
        self.language == Language::Python || self.text.lines().any(|line| line.starts_with("torchrun "))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Shell,
    Python,
}

/// How often a block runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Runs {
    Twice,
    Once,
    /// Why not at all.
    Not(String),
}

/// Words that begin a command line, beside the names of programs. Indented blocks that begin with others show files.
const COMMANDS: [&str; 9] = ["$", "export", "cargo", "python3", "pip", "curl", "wget", "apt-get", "torchrun"];

/// The blocks of commands of a page, in order: indented ones that begin with a command, and fences of `bash` and `python`.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut runs = Runs::Twice;
    let mut lines = (1..).zip(page.lines()).peekable();
    let mut before_is_blank = true;
    while let Some((line, text)) = lines.next() {
        let marker = |kind: &str| text.strip_prefix("<!-- ")?.strip_prefix(kind)?.strip_suffix(" -->");
        if text.starts_with('#') {
            runs = Runs::Twice;
        } else if let Some(reason) = marker("not run: ") {
            runs = Runs::Not(reason.to_owned());
        } else if text == "<!-- run -->" {
            runs = Runs::Twice;
        } else if marker("run once: ").is_some() {
            runs = Runs::Once;
        } else if let Some(name) = text.strip_prefix("```") {
            let mut inside = String::new();
            for (_, text) in lines.by_ref() {
                if text.starts_with("```") {
                    break;
                }
                inside += text;
                inside.push('\n');
            }
            let language = match name {
                "bash" => Language::Shell,
                "python" => Language::Python,
                _ => continue,
            };
            blocks.push(Block { line: line + 1, language, text: inside, runs: runs.clone() });
        } else if before_is_blank && let Some(first) = text.strip_prefix("    ") {
            let mut inside = vec![first];
            // Blank lines within a block belong to it.
            let mut blank = 0;
            while let Some((_, text)) = lines.next_if(|(_, text)| text.starts_with("    ") || text.is_empty()) {
                match text.strip_prefix("    ") {
                    Some(text) => {
                        inside.extend(std::iter::repeat_n("", blank));
                        inside.push(text);
                        blank = 0;
                    }
                    None => blank += 1,
                }
            }
            if is_command(first) {
                blocks.push(Block {
                    line,
                    language: Language::Shell,
                    text: inside.into_iter().map(|line| format!("{}\n", without_prompt(line))).collect(),
                    runs: runs.clone(),
                });
            }
            before_is_blank = blank > 0;
            continue;
        }
        before_is_blank = text.is_empty();
    }
    blocks
}

fn is_command(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    first.starts_with("grappa-") || first.ends_with('$') || COMMANDS.contains(&first)
}

fn without_prompt(line: &str) -> &str {
    line.strip_prefix("$ ").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_how_often_they_run() {
        let page = "# Title\nText.\n\n    $ grappa-store info a \\\n          --coverage   # a comment\n    $ ls\n\nA file:\n\n    0 1\n\n\
                    <!-- run once: it says so -->\n\n    grappa-gen er\n\n    python3 - <<'EOF'\n    if x:\n        y\n    EOF\n\n\
                    <!-- not run: hours -->\n```bash\nsleep 9\n```\n## Next\n```python\nimport this\n```\n```yaml\na: b\n```\n\
                    \nNo block:\n    $ because no blank line is before it\n\n    host0$ grappa-gen\n";
        let block = |line, language, text: &str, runs| Block { line, language, text: text.to_owned(), runs };
        let expected = vec![
            block(4, Language::Shell, "grappa-store info a \\\n      --coverage   # a comment\nls\n", Runs::Twice),
            block(14, Language::Shell, "grappa-gen er\n\npython3 - <<'EOF'\nif x:\n    y\nEOF\n", Runs::Once),
            block(23, Language::Shell, "sleep 9\n", Runs::Not("hours".into())),
            block(27, Language::Python, "import this\n", Runs::Twice),
            block(36, Language::Shell, "host0$ grappa-gen\n", Runs::Twice),
        ];
        assert_eq!(blocks(page), expected);
    }
}
