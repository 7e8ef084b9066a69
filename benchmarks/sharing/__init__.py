"""What sharing a card costs and keeps to, on pretended cards."""
