"""`/broker`, `/journal` and `/pipeline` requests; above the facade."""
