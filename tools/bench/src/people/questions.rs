//! The nine queries of prrao87's comparison, in Cypher and in SQL. Ties are broken by names or numbers, so that all stores
//! have one answer.

pub struct Question {
    pub name: &'static str,
    pub remark: &'static str,
    pub cypher: &'static str,
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(dead_code, reason = "for a store that is not built in")
    )]
    pub sql: &'static str,
}

pub const QUESTIONS: [Question; 9] = [
    Question {
        name: "people 1: three most followed",
        remark: "all edges, grouped by their targets",
        cypher: "MATCH (a:Person)-[:FOLLOWS]->(b:Person) RETURN b.id AS id, b.name AS name, count(a) AS n \
                 ORDER BY n DESC, id LIMIT 3",
        sql: "SELECT id, name, n FROM (SELECT target, count(*) AS n FROM follows GROUP BY target \
              ORDER BY n DESC, target LIMIT 3) JOIN people ON id = target ORDER BY n DESC, id",
    },
    Question {
        name: "people 2: city of the most followed",
        remark: "the same, and two edges from one block",
        cypher: "MATCH (a:Person)-[:FOLLOWS]->(b:Person) WITH b, b.id AS id, count(a) AS n ORDER BY n DESC, id LIMIT 1 \
                 MATCH (b)-[:LIVES_IN]->(c:City)-[:CITY_IN]->(s:State) RETURN b.name, n, c.city, s.state",
        sql: "SELECT people.name, n, city, state FROM (SELECT target, count(*) AS n FROM follows GROUP BY target \
              ORDER BY n DESC, target LIMIT 1) JOIN people ON people.id = target \
              JOIN cities ON cities.id = people.city_id JOIN states ON states.id = state_id",
    },
    Question {
        name: "people 3: five youngest cities of a country",
        remark: "all people of a third of the cities",
        cypher: "MATCH (p:Person)-[:LIVES_IN]->(c:City)-[:CITY_IN]->(:State)-[:STATE_IN]->(o:Country) \
                 WHERE o.country = 'United States' WITH c.city AS city, sum(p.age) * 1000000 / count(p) AS age \
                 RETURN city ORDER BY age, city LIMIT 5",
        sql: "SELECT city FROM countries JOIN states ON country_id = countries.id JOIN cities ON state_id = states.id \
              JOIN people ON city_id = cities.id WHERE country = 'United States' GROUP BY cities.id \
              ORDER BY sum(age) * 1000000 / count(*), city LIMIT 5",
    },
    Question {
        name: "people 4: people of an age by country",
        remark: "all people",
        cypher: "MATCH (p:Person)-[:LIVES_IN]->(:City)-[:CITY_IN]->(:State)-[:STATE_IN]->(o:Country) \
                 WHERE p.age >= 30 AND p.age <= 40 RETURN o.country AS country, count(p) AS n ORDER BY n DESC, country LIMIT 3",
        sql: "SELECT country, count(*) AS n FROM people JOIN cities ON cities.id = city_id \
              JOIN states ON states.id = state_id JOIN countries ON countries.id = country_id \
              WHERE age BETWEEN 30 AND 40 GROUP BY countries.id ORDER BY n DESC, country LIMIT 3",
    },
    Question {
        name: "people 5: men of a city with an interest",
        remark: "one city and one interest, both by index",
        cypher: "MATCH (p:Person)-[:HAS_INTEREST]->(i:Interest) WHERE i.interest = 'fine dining' AND p.gender = 'male' \
                 WITH p MATCH (p)-[:LIVES_IN]->(c:City) WHERE c.city = 'City 1' RETURN count(p)",
        sql: "SELECT count(*) FROM interests JOIN has_interest ON interest_id = interests.id \
              JOIN people ON people.id = person_id JOIN cities ON cities.id = city_id \
              WHERE interest = 'fine dining' AND gender = 'male' AND city = 'City 1'",
    },
    Question {
        name: "people 6: cities with most women with an interest",
        remark: "all people of one interest",
        cypher: "MATCH (p:Person)-[:HAS_INTEREST]->(i:Interest) WHERE i.interest = 'tennis' AND p.gender = 'female' \
                 WITH p MATCH (p)-[:LIVES_IN]->(c:City) RETURN count(p) AS n, c.city AS city ORDER BY n DESC, city LIMIT 5",
        sql: "SELECT count(*) AS n, city FROM interests JOIN has_interest ON interest_id = interests.id \
              JOIN people ON people.id = person_id JOIN cities ON cities.id = city_id \
              WHERE interest = 'tennis' AND gender = 'female' GROUP BY cities.id ORDER BY n DESC, city LIMIT 5",
    },
    Question {
        name: "people 7: state with most young people with an interest",
        remark: "all people of one interest, or of a third of the states",
        cypher: "MATCH (p:Person)-[:LIVES_IN]->(:City)-[:CITY_IN]->(s:State)-[:STATE_IN]->(o:Country) \
                 WHERE p.age >= 23 AND p.age <= 30 AND o.country = 'United States' \
                 WITH p, s MATCH (p)-[:HAS_INTEREST]->(i:Interest) WHERE i.interest = 'photography' \
                 RETURN count(p) AS n, s.state AS state ORDER BY n DESC, state LIMIT 1",
        sql: "SELECT count(*) AS n, state FROM interests JOIN has_interest ON interest_id = interests.id \
              JOIN people ON people.id = person_id JOIN cities ON cities.id = city_id \
              JOIN states ON states.id = state_id JOIN countries ON countries.id = country_id \
              WHERE interest = 'photography' AND age BETWEEN 23 AND 30 AND country = 'United States' \
              GROUP BY states.id ORDER BY n DESC, state LIMIT 1",
    },
    Question {
        name: "people 8: paths of two edges",
        remark: "some 58 million with 100,000 people",
        cypher: "MATCH (a:Person)-[:FOLLOWS]->(b:Person)-[:FOLLOWS]->(c:Person) RETURN count(*)",
        sql: "SELECT count(*) FROM follows AS a JOIN follows AS b ON b.source = a.target",
    },
    Question {
        name: "people 9: paths of two edges, by ages",
        remark: "the same, with a condition on the second and one on the third",
        cypher: "MATCH (a:Person)-[:FOLLOWS]->(b:Person)-[:FOLLOWS]->(c:Person) WHERE b.age < 50 AND c.age > 25 \
                 RETURN count(*)",
        sql: "SELECT count(*) FROM people AS p JOIN follows AS a ON a.target = p.id JOIN follows AS b ON b.source = p.id \
              JOIN people AS q ON q.id = b.target WHERE p.age < 50 AND q.age > 25",
    },
];
