//! Scores of predicted links: ranks of edges among candidates, ROC-AUC and average precision. [`by_source`](super::by_source) has rankings.
//!
//! The rank of an edge is its place when its candidates and itself are sorted by score. Equal scores share the mean of their places, so a
//! model that gives all pairs the same score is no better than chance. Sums are integers and do not depend on the order of edges.

use serde::{Deserialize, Serialize};

use super::{
    auc::Ranking,
    by_source::{SourceReport, SourceScores},
    loss::LossSum,
    words::Words,
};

/// The places up to which [`RankReport`] counts edges.
pub const HITS_AT: [u64; 5] = [1, 3, 10, 50, 100];

/// The ranks of edges.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    edges: u64,
    reciprocals: LossSum,
    hits: [u64; HITS_AT.len()],
}

impl Ranks {
    /// Adds an edge with `above` candidates of a higher score and `equal` candidates of the same score.
    pub fn add(&mut self, above: u64, equal: u64) {
        // Twice the rank is a whole number.
        let twice = 2 * (above + 1) + equal;
        self.edges += 1;
        self.reciprocals.add(2.0 / twice as f64);
        for (hits, at) in self.hits.iter_mut().zip(HITS_AT) {
            *hits += u64::from(twice <= 2 * at);
        }
    }

    /// Adds an edge by its score and the scores of its candidates, as [`Places::add_scores`] counts them.
    pub fn add_scores(&mut self, edge: f32, candidates: impl Iterator<Item = f32>) {
        let mut places = Places::default();
        places.add_scores(edge, candidates);
        self.add(places.above, places.equal);
    }

    /// Adds the ranks of other edges.
    pub fn merge(&mut self, other: &Self) {
        self.edges += other.edges;
        self.reciprocals.merge(other.reciprocals);
        for (hits, other) in self.hits.iter_mut().zip(other.hits) {
            *hits += other;
        }
    }

    /// Number of edges.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    fn pass(&mut self, words: &mut Words<'_>) {
        words.count(&mut self.edges);
        self.hits.iter_mut().for_each(|hits| words.count(hits));
        words.sum(&mut self.reciprocals);
    }

    fn report(&self) -> RankReport {
        let [hits_at_1, hits_at_3, hits_at_10, hits_at_50, hits_at_100] =
            self.hits.map(|hits| (self.edges > 0).then(|| hits as f64 / self.edges as f64));
        let mrr = self.reciprocals.mean(self.edges);
        RankReport { mrr, hits_at_1, hits_at_3, hits_at_10, hits_at_50, hits_at_100 }
    }
}

/// Numbers of candidates of an edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Places {
    /// With a higher score than the edge.
    pub above: u64,
    /// With the same score.
    pub equal: u64,
}

impl Places {
    /// Counts candidates of an edge by scores. A candidate whose score is NaN is above. An edge whose score is NaN is the last one.
    pub fn add_scores(&mut self, edge: f32, candidates: impl Iterator<Item = f32>) {
        for score in candidates {
            if score == edge {
                self.equal += 1;
            } else if score > edge || score.is_nan() || edge.is_nan() {
                self.above += 1;
            }
        }
    }

    /// Adds the candidates that were counted elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.above += other.above;
        self.equal += other.equal;
    }
}

/// Scores of edges among candidates.
#[derive(Debug, Clone, Default)]
pub struct LinkScores {
    /// Ranks among candidates without known edges.
    pub filtered: Ranks,
    /// Ranks among candidates that may be known edges.
    pub raw: Ranks,
    /// Number of edges without a filtered rank: their sources have edges to all candidates.
    pub unranked: u64,
    /// Scores of the rankings of all destinations, if they are ranked.
    pub by_source: SourceScores,
    /// The scores of EdgeBank, which predicts the edges that were there before, if edges have times.
    pub edge_bank: Option<Box<LinkScores>>,
    pairs: Ranking,
}

impl LinkScores {
    /// Adds the score of an edge, and of a pair without an edge, for ROC-AUC and average precision.
    pub fn add_pair(&mut self, edge: f32, pair: f32) {
        self.pairs.add(edge, true);
        self.pairs.add(pair, false);
    }

    /// Adds the scores of other edges.
    pub fn merge(&mut self, other: Self) {
        self.filtered.merge(&other.filtered);
        self.raw.merge(&other.raw);
        self.unranked += other.unranked;
        self.by_source.merge(&other.by_source);
        self.pairs.merge(other.pairs);
        if let Some(bank) = other.edge_bank {
            self.edge_bank.get_or_insert_default().merge(*bank);
        }
    }

    /// The scores as words, for [`LinkScores::merge_words`] on another process.
    pub fn as_words(&mut self) -> Vec<u32> {
        let mut words = Words::default();
        self.pass(&mut words);
        words.written
    }

    /// Adds scores that another process made words of.
    ///
    /// # Panics
    /// If they are words of something else.
    pub fn merge_words(&mut self, words: &[u32]) {
        let mut other = Self::default();
        Words::read(words, |words| other.pass(words));
        self.merge(other);
    }

    fn pass(&mut self, words: &mut Words<'_>) {
        self.filtered.pass(words);
        self.raw.pass(words);
        words.count(&mut self.unranked);
        words.ranking(&mut self.pairs);
        self.by_source.pass(words);
        let mut has_bank = u64::from(self.edge_bank.is_some());
        words.count(&mut has_bank);
        if has_bank > 0 {
            self.edge_bank.get_or_insert_default().pass(words);
        }
    }

    /// The scores, among candidates of a kind.
    pub fn report(mut self, candidates: LinkCandidates) -> LinkReport {
        let edge_bank = self.edge_bank.take().map(|bank| {
            let LinkReport { filtered, raw, auc, average_precision, .. } = bank.report(candidates.clone());
            BaselineReport { filtered, raw, auc, average_precision }
        });
        LinkReport {
            edges: self.filtered.edges + self.unranked,
            unranked: self.unranked,
            unseen: 0,
            candidates,
            filtered: self.filtered.report(),
            raw: self.raw.report(),
            auc: self.pairs.area(),
            average_precision: self.pairs.average_precision(),
            by_source: self.by_source.report(),
            edge_bank,
        }
    }
}

/// The candidates that edges were ranked among.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCandidates {
    /// The number for each edge; the largest one if they are listed. None: all nodes.
    pub count: Option<u32>,
    /// How they are drawn: `uniform` or `degree`; or `listed`, by the user.
    pub kind: String,
    /// The number of destinations that they are among; none for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<u64>,
}

impl LinkCandidates {
    /// The kind of candidates that the user lists.
    pub const LISTED: &str = "listed";
}

impl std::fmt::Display for LinkCandidates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.count, self.among) {
            (Some(count), _) if self.kind == Self::LISTED => write!(f, "up to {count} listed candidates"),
            (Some(count), None) => write!(f, "{count} {} candidates", self.kind),
            (Some(count), Some(among)) => write!(f, "{count} {} candidates of {among} destinations", self.kind),
            (None, None) => f.write_str("all nodes"),
            (None, Some(among)) => write!(f, "all {among} destinations"),
        }
    }
}

/// Ranks of edges. All are None without edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Mean of the reciprocal ranks.
    pub mrr: Option<f64>,
    /// Fraction of the edges whose rank is 1.
    pub hits_at_1: Option<f64>,
    /// Fraction of the edges whose rank is at most 3; none in scores of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits_at_3: Option<f64>,
    /// Fraction of the edges whose rank is at most 10.
    pub hits_at_10: Option<f64>,
    /// Fraction of the edges whose rank is at most 50.
    pub hits_at_50: Option<f64>,
    /// Fraction of the edges whose rank is at most 100.
    pub hits_at_100: Option<f64>,
}

/// Scores of predicted links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Number of edges.
    pub edges: u64,
    /// Number of these that have no filtered rank: their sources have edges to all candidates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unranked: u64,
    /// Number of triples with an entity that no training triple has. They rank last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen: u64,
    /// The candidates.
    pub candidates: LinkCandidates,
    /// Ranks among candidates without known edges.
    pub filtered: RankReport,
    /// Ranks among candidates that may be known edges.
    pub raw: RankReport,
    /// ROC-AUC of the edges against as many pairs without an edge, both ends drawn as candidates are; uniform if candidates are all nodes.
    /// None without edges, or if a score is NaN.
    pub auc: Option<f64>,
    /// Average precision, as [`LinkReport::auc`].
    pub average_precision: Option<f64>,
    /// Scores of the rankings of sources among all destinations without known edges, if they are ranked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_source: Option<SourceReport>,
    /// Scores of EdgeBank on the same edges and candidates, if edges have times: an edge is predicted if there was one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_bank: Option<BaselineReport>,
}

/// Scores of a baseline on the same edges and candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineReport {
    /// Ranks among candidates without known edges.
    pub filtered: RankReport,
    /// Ranks among candidates that may be known edges.
    pub raw: RankReport,
    /// As [`LinkReport::auc`].
    pub auc: Option<f64>,
    /// As [`LinkReport::auc`].
    pub average_precision: Option<f64>,
}

impl std::fmt::Display for LinkReport {
    /// One line, such as `MRR 0.7120 among 100 uniform candidates, filtered (raw 0.7012); Hits@1 61.00 %, ...`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RankReport { mrr, hits_at_1, hits_at_3, hits_at_10, hits_at_50, hits_at_100 } = &self.filtered;
        write!(
            f,
            "MRR {} among {}, filtered (raw {}); Hits@1 {}, @3 {}, @10 {}, @50 {}, @100 {}",
            number(*mrr),
            self.candidates,
            number(self.raw.mrr),
            percent(*hits_at_1),
            percent(*hits_at_3),
            percent(*hits_at_10),
            percent(*hits_at_50),
            percent(*hits_at_100),
        )?;
        // Triples have no pairs.
        if self.auc.is_some() || self.average_precision.is_some() {
            let (area, precision) = (percent(self.auc), percent(self.average_precision));
            write!(f, "; AUC {area} and average precision {precision} against {} pairs", self.edges)?;
        }
        if self.unseen > 0 {
            write!(f, "; {} triples have an entity without training triples, and rank last", self.unseen)?;
        }
        if self.unranked > 0 {
            write!(f, "; {} edges have no filtered rank: their sources have edges to all candidates", self.unranked)?;
        }
        if let Some(BaselineReport { filtered, auc, average_precision, .. }) = &self.edge_bank {
            let (area, precision) = (percent(*auc), percent(*average_precision));
            write!(f, "; EdgeBank: MRR {}, AUC {area}, average precision {precision}", number(filtered.mrr))?;
        }
        let Some(SourceReport { sources, recall_at_20, map_at_20, ndcg_at_20, .. }) = &self.by_source else {
            return Ok(());
        };
        let destinations = LinkCandidates { count: None, ..self.candidates.clone() };
        write!(
            f,
            "; Recall@20 {}, MAP@20 {}, NDCG@20 {} of {sources} sources among {destinations}",
            percent(*recall_at_20),
            number(*map_at_20),
            number(*ndcg_at_20)
        )
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn number(score: Option<f64>) -> String {
    score.map_or("undefined".to_owned(), |score| format!("{score:.4}"))
}

fn percent(score: Option<f64>) -> String {
    score.map_or("undefined".to_owned(), |score| format!("{:.2} %", score * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> LinkCandidates {
        LinkCandidates { count: Some(4), kind: "uniform".to_owned(), among: None }
    }

    /// The second of its destinations is one of two that are held out.
    fn scores_of_a_source() -> LinkScores {
        let mut scores = LinkScores::default();
        scores.by_source.add(&[false, true], 2);
        scores
    }

    fn ranked(edge: f32, others: &[f32]) -> RankReport {
        let mut ranks = Ranks::default();
        ranks.add_scores(edge, others.iter().copied());
        ranks.report()
    }

    #[test]
    fn equal_scores_share_the_mean_of_their_places() {
        assert_eq!(ranked(2.0, &[1.0, 3.0, 0.0]).mrr, Some(0.5));
        // The places 1 to 4: 2.5.
        let shared = ranked(1.0, &[1.0, 1.0, 1.0]).mrr.unwrap();
        assert!((shared - 1.0 / 2.5).abs() < 1e-9, "{shared}");
        // The places 1 and 2 are not the first.
        assert_eq!(ranked(1.0, &[1.0]).hits_at_1, Some(0.0));
        let constant = ranked(0.0, &[0.0; 20]);
        assert_eq!((constant.hits_at_10, constant.hits_at_50), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn a_score_that_is_nan_is_never_good() {
        assert!((ranked(f32::NAN, &[1.0, 2.0]).mrr.unwrap() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(ranked(1.0, &[f32::NAN, 0.0]).mrr, Some(0.5));
    }

    #[test]
    fn scores_do_not_depend_on_the_order_of_edges() {
        let add = |scores: &mut LinkScores, edge: u64| {
            scores.filtered.add(edge % 13, edge % 3);
            scores.raw.add(edge % 17, edge % 2);
            scores.add_pair((edge % 7) as f32, (edge % 5) as f32);
            scores.by_source.add(&[edge.is_multiple_of(2), edge.is_multiple_of(3)], 1 + edge % 4);
        };
        let (mut all, mut parts) = (LinkScores::default(), [LinkScores::default(), LinkScores::default()]);
        for edge in 0..100 {
            add(&mut all, edge);
            add(&mut parts[(edge % 2) as usize], 99 - edge);
        }
        let [mut first, mut second] = parts;
        let mut by_words = first.clone();
        by_words.merge_words(&second.as_words());
        first.merge(second);
        let report = all.report(candidates());
        assert_eq!(report, first.report(candidates()));
        assert_eq!(report, by_words.report(candidates()));
        assert_eq!(report.edges, 100);
        assert!(report.filtered.mrr > report.raw.mrr);
        assert_eq!(report.by_source.unwrap().sources, 100);
    }

    #[test]
    fn the_baseline_is_merged_and_sent_with_the_scores() {
        let mut parts = [1, 3].map(|equal| {
            let mut scores = LinkScores::default();
            scores.filtered.add(0, 0);
            scores.edge_bank.get_or_insert_default().filtered.add(0, equal);
            scores
        });
        let words = parts[1].as_words();
        parts[0].merge_words(&words);
        let [merged, _] = parts;
        let report = merged.report(candidates());
        let bank = report.edge_bank.as_ref().unwrap();
        // The places 1.5 and 2.5.
        assert!((bank.filtered.mrr.unwrap() - f64::midpoint(1.0 / 1.5, 1.0 / 2.5)).abs() < 1e-9);
        assert_eq!(report.filtered.mrr, Some(1.0));
        assert!(report.to_string().contains("; EdgeBank: MRR 0.5333, AUC undefined"), "{report}");
    }

    #[test]
    fn area_and_precision_are_of_edges_against_pairs() {
        let mut scores = LinkScores::default();
        for (edge, pair) in [(0.9, 0.1), (0.4, 0.6)] {
            scores.filtered.add(0, 0);
            scores.add_pair(edge, pair);
        }
        let report = scores.report(candidates());
        assert_eq!(report.auc, Some(0.75));
        // 0.9 first, 0.4 third: (1 + 2/3) / 2.
        assert!((report.average_precision.unwrap() - 5.0 / 6.0).abs() < 1e-9);
        assert!(!report.to_string().contains("Recall"), "it is not asked for");
        let mut ranked = scores_of_a_source();
        ranked.filtered.add(0, 0);
        let line = ranked.report(candidates()).to_string();
        assert!(
            line.ends_with("; Recall@20 50.00 %, MAP@20 0.2500, NDCG@20 0.3869 of 1 sources among all nodes"),
            "{line}"
        );
        let line = report.to_string();
        assert!(
            line.contains("MRR 1.0000 among 4 uniform candidates, filtered") && line.contains("AUC 75.00 %"),
            "{line}"
        );
        let listed = LinkCandidates { count: Some(4), kind: LinkCandidates::LISTED.to_owned(), among: None };
        assert_eq!(listed.to_string(), "up to 4 listed candidates");
        let none = LinkScores::default().report(candidates());
        assert_eq!((none.filtered.mrr, none.auc), (None, None));
    }
}
