//! The strong components of a directed graph.

/// The strong components of a graph with more than one member, or a loop. Tarjan, "Depth-First Search and
/// Linear Graph Algorithms" (1972), without recursion.
pub(super) fn strong_components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let mut found = Vec::new();
    let mut index = vec![NEW; next.len()];
    let mut low = vec![0; next.len()];
    let mut on_stack = vec![false; next.len()];
    let mut stack = Vec::new();
    let mut count = 0;
    for root in 0..next.len() {
        if index[root] != NEW {
            continue;
        }
        // The nodes on the path, and how many edges of each were followed.
        let mut way = vec![(root, 0)];
        while let Some((place, done)) = way.last_mut() {
            let place = *place;
            if *done == 0 {
                (index[place], low[place]) = (count, count);
                count += 1;
                stack.push(place);
                on_stack[place] = true;
            }
            if let Some(to) = next[place].get(*done) {
                *done += 1;
                if index[*to] == NEW {
                    way.push((*to, 0));
                } else if on_stack[*to] {
                    low[place] = low[place].min(index[*to]);
                }
                continue;
            }
            way.pop();
            if let Some((before, _)) = way.last() {
                low[*before] = low[*before].min(low[place]);
            }
            if low[place] == index[place] {
                let mut component = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    component.push(member);
                    if member == place {
                        break;
                    }
                }
                if component.len() > 1 || next[place].contains(&place) {
                    found.push(component);
                }
            }
        }
    }
    found
}
