//! Personalised PageRank on an undirected weighted graph, by power iteration.
//!
//! p ← (1 − d)·r + d·(Pᵀp + m·r), where r is the reset vector scaled to sum 1, P the row-normalised weights, d the
//! probability of following an edge, and m the mass on vertices without edges, which goes where resets go.

const MOST_STEPS: usize = 100;
const SMALLEST_CHANGE: f64 = 1e-10;

/// An undirected edge between two vertices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Edge {
    pub ends: (usize, usize),
    pub weight: f64,
}

/// One score a vertex, summing to 1; all zeros when the reset vector has no positive entry. Parallel edges add up.
///
/// `reset` has one entry a vertex; entries that are negative or not a number count as 0.
pub(super) fn scores(edges: &[Edge], reset: &[f64], damping: f64) -> Vec<f64> {
    let reset: Vec<f64> = reset.iter().map(|value| if *value > 0.0 { *value } else { 0.0 }).collect();
    let total: f64 = reset.iter().sum();
    if total <= 0.0 {
        return vec![0.0; reset.len()];
    }
    let reset: Vec<f64> = reset.iter().map(|value| value / total).collect();
    let mut strength = vec![0.0; reset.len()];
    for Edge { ends: (left, right), weight } in edges {
        strength[*left] += weight;
        strength[*right] += weight;
    }
    let mut current = reset.clone();
    for _ in 0..MOST_STEPS {
        let mut flow = vec![0.0; reset.len()];
        for Edge { ends: (left, right), weight } in edges {
            flow[*right] += current[*left] * weight / strength[*left];
            flow[*left] += current[*right] * weight / strength[*right];
        }
        let stranded: f64 =
            current.iter().zip(&strength).filter(|(_, strength)| **strength == 0.0).map(|(mass, _)| mass).sum();
        let next: Vec<f64> =
            reset.iter().zip(&flow).map(|(r, flow)| (1.0 - damping) * r + damping * (flow + stranded * r)).collect();
        let change: f64 = next.iter().zip(&current).map(|(new, old)| (new - old).abs()).sum();
        current = next;
        if change < SMALLEST_CHANGE {
            break;
        }
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solves A·x = b by Gaussian elimination with pivoting.
    fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
        let n = b.len();
        for column in 0..n {
            let pivot = (column..n).max_by(|l, r| a[*l][column].abs().total_cmp(&a[*r][column].abs())).unwrap();
            a.swap(column, pivot);
            b.swap(column, pivot);
            for row in column + 1..n {
                let factor = a[row][column] / a[column][column];
                let pivot = a[column][column..].to_vec();
                a[row][column..].iter_mut().zip(&pivot).for_each(|(value, above)| *value -= factor * above);
                b[row] -= factor * b[column];
            }
        }
        for row in (0..n).rev() {
            let rest: f64 = (row + 1..n).map(|k| a[row][k] * b[k]).sum();
            b[row] = (b[row] - rest) / a[row][row];
        }
        b
    }

    #[test]
    fn six_vertices_match_a_dense_linear_solve() {
        let edge = |left, right, weight| Edge { ends: (left, right), weight };
        let edges = [edge(0, 1, 2.0), edge(1, 2, 1.0), edge(2, 3, 0.5), edge(3, 0, 1.5), edge(1, 3, 1.0)];
        // Vertex 4 hangs on 2; vertex 5 has no edge.
        let edges = [&edges[..], &[edge(2, 4, 0.8)]].concat();
        let reset = [0.5, 0.0, 0.2, 0.0, 0.1, 0.2];
        let damping = 0.5;
        let n = reset.len();
        let mut weights = vec![vec![0.0; n]; n];
        for Edge { ends: (left, right), weight } in &edges {
            weights[*left][*right] += weight;
            weights[*right][*left] += weight;
        }
        // (I − d·(Pᵀ + r·danglingᵀ))·p = (1 − d)·r
        let mut a = vec![vec![0.0; n]; n];
        for (from, row) in weights.iter().enumerate() {
            let strength: f64 = row.iter().sum();
            for to in 0..n {
                let step = if strength > 0.0 { row[to] / strength } else { reset[to] };
                a[to][from] = f64::from(u8::from(to == from)) - damping * step;
            }
        }
        let expected = solve(a, reset.iter().map(|r| (1.0 - damping) * r).collect());
        let found = scores(&edges, &reset, damping);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-8, "{found} {expected}");
        }
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_reset_of_nothing_gives_nothing() {
        assert_eq!(scores(&[], &[0.0, f64::NAN, -1.0], 0.5), [0.0; 3]);
    }
}
