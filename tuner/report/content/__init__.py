"""What a report says: a study's figures as sections."""
