"""``fleximq bench``: its plan, the publisher and subscriber processes, and its report."""
