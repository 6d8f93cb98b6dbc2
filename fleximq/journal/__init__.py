"""Where durable publications are kept before they are delivered."""
