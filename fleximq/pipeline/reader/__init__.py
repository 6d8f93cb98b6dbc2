"""The reading half of the data source: what options mean, where reading begins and ends, who reads what."""
