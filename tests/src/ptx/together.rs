//! What blocks of the finishing kernel do together, counted from its source: words that go over
//! lanes and warps, and barriers.

/// What one block does together for a listed row: words that go over lanes and warps, and
/// barriers.
pub fn of_short_rows() -> (usize, usize) {
    // Of a list that is too long to be ranked, number and mass down to a key: of the whole, to
    // reach a goal of top_k and of top_p, and at two cuts: rows with top_n_sigma are not listed.
    const DOWN_TO_A_KEY: usize = 1 + 2 + 2;
    // The leaders; the mean gap of a ranked list, and of a long one.
    let block_sums = [2, 1, 1];
    let words = block_sums.iter().sum::<usize>() + 2 * DOWN_TO_A_KEY;
    let reduces = block_sums.len() + DOWN_TO_A_KEY;
    // The masses of a ranked list, over lanes.
    let scans = 1;
    // The tally is taken, two to gather the list, one to rank it, outputs, the tally cleared.
    let legs = 1 + 2 + 1 + 1 + 1;
    (2 * words + scans, legs + 2 * (reduces + scans))
}

/// A ladder is cleared, and filled; on it a place is found, by a leg before a scan; tokens are
/// listed; and a key is found among these.
const CLIMB: usize = 2;
const PLACE: usize = 1;
const LIST: usize = 2;
const KEY: usize = 2;

/// Blocks tell each other how much they have gathered, and whether it fits; in a cluster a warp asks
/// how much comes before its part: words that go over lanes alone.
fn of_collecting(clustered: usize) -> usize {
    2 + clustered
}

/// The same of rows that few values may serve, in clusters or not, without rules and filters that
/// cut: these have a text of their own.
pub fn of_plain_few(clustered: usize) -> (usize, usize) {
    // The sum of the weights, of a judged row and of another; the leaders and the key drawn, mass
    // and number above; of a report the model's sum, and a rank.
    let block_sums = [1, 1, 3, 2, 1, 1];
    // For the floor of parts, for that of a sample, and for the rung of the best.
    let scans = 1 + 1 + 1;
    // Parts; a sample, its floor, what is told, a gathering, which blocks bring together; scores,
    // outputs; a ladder for a report alone, its best, its draws, and the row; and what is finished.
    let legs = 1 + 2 + 1 + 1 + clustered + 1 + 1 + CLIMB + PLACE + LIST + 1 + 1 + 1;
    let words = block_sums.iter().sum::<usize>();
    (2 * words + of_collecting(clustered) + scans, legs + 2 * (block_sums.len() + scans))
}

/// The same of any of them.
pub fn of_few(clustered: usize) -> (usize, usize) {
    // The sum of the weights, of a judged row and of another, the highest of a masked sample;
    // moments, those after rules, and ends; units; the highest value; the leaders and the key
    // drawn, mass and number above; the leaders of other filters; the mean gap of a ranked row; of
    // a report the model's sum, and a rank.
    let block_sums = [1, 1, 1, 4, 4, 2, 4, 1, 3, 2, 3, 1, 1, 1];
    // Of tokens that are too many to be ranked: of all, to reach a goal of top_k and of top_p, at
    // three cuts, and the mean gap.
    const CHOSEN: usize = 1 + 2 + 3 + 1;
    // Of all blocks: ends, and for the row's own ends, moments and units.
    let combined = 2 + 2 + 4 + 4 + of_collecting(clustered);
    // For the floor of parts, and of a sample; the likeliest; the masses of a ranked row; two goals;
    // the best of a report.
    let scans = 2 + 1 + 1 + 2 + 1;
    // Parts; a sample, its mask, its floor, what is told, a gathering, marks cleared and set, sums,
    // units, what blocks bring together; scores, outputs; the likeliest, brought to their place and
    // ranked; those that are chosen, two goals among them, outputs; a ladder for a report alone,
    // and for the model's; its best, its draws, and the row; and what is finished.
    let before = 1 + 3 + 1 + 1 + 2 + 1 + 1 + clustered;
    let ranked = CLIMB + PLACE + LIST + 1 + 1;
    let chosen = CLIMB + 2 * (PLACE + LIST + KEY) + 1;
    let legs = before + 1 + 1 + ranked + chosen;
    let legs = legs + 2 * CLIMB + PLACE + LIST + 1 + 1 + 1;
    let words = block_sums.iter().sum::<usize>() + CHOSEN;
    (2 * words + combined + scans, legs + 2 * (block_sums.len() + CHOSEN + scans))
}
