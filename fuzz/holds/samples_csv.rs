//! Any bytes may be tried as a file of samples. They are refused with the number of a line, or read to the end; either way
//! what was read gives recommendations, and it is the same however the bytes arrive.

use std::io::Read;

use plumb_recommender::offline::history::History;
use plumb_recommender::offline::plot;
use plumb_recommender::{AggregationConfig, AggregationSettings, EstimationSettings};

/// Gives its bytes in pieces of seven.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(buffer.len()).min(7);
        let (now, later) = self.0.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

/// Fails where it does not hold.
pub(crate) fn holds(bytes: &[u8]) {
    let Ok(config) = AggregationConfig::new(AggregationSettings::default()) else { return };
    let read = |input: &mut dyn Read| {
        let mut history = History::new(&config);
        let error = history.read(input, |_, _| ()).err().map(|error| error.to_string());
        (history, error)
    };
    let (history, error) = read(&mut &*bytes);
    let (in_pieces, same_error) = read(&mut Pieces(bytes));
    assert_eq!(
        (history.rows, &history.discarded, &error),
        (in_pieces.rows, &in_pieces.discarded, &same_error)
    );
    if let Some(error) = error {
        assert!(error.starts_with("line "), "{error}");
    }
    let settings = EstimationSettings::default();
    assert_eq!(history.workload.recommend(&settings), in_pieces.workload.recommend(&settings));
    let explained = history.workload.explain(&settings);
    for explanation in &explained {
        plumb_vpa_explain::text(explanation, None);
        plumb_vpa_explain::json(explanation);
    }
    plot::svg(&explained);
}
